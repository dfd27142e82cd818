// Writes a chunk: a program of some layers for one micro-batch. In order:
//
// 1. declare(): the inputs from the batch, i32 [tokens] of this rank, and the states.
// 2. write_forward(): the embedding of the tokens, the layers, the last norm. A chunk without the
//    embedding or the head has the boundary to another chunk there.
// 3. write_router_losses(): the balance loss and the z-loss of all mixture layers, [1] each. A
//    balance loss that pools the layers of several chunks is in the last of them.
// 4. write_loss(): linear map of the head and cross-entropy as one operation, which computes the
//    gradients of its inputs too while it has a piece of the logits.
// 5. write_backward(): differentiate() appends the gradient of each node. It begins with *seeds*,
//    the gradients of the losses.
// 6. rematerialize() replaces saved values by their recomputation.

#include "model/chunk.h"

#include <algorithm>

#include "engine/differentiate.h"
#include "engine/rematerialize.h"
#include "model/balance_loss.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/cross_entropy.h"
#include "ops/router/losses.h"
#include "ops/update/kept_values.h"

namespace tessera {
namespace {

/// Returns the positions of all keys that a rank's queries see, gathered over the context axis once
/// for all layers. Returns none if the axis has one rank.
std::optional<Value> gathered_positions(ModelWriter& writer, Value positions) {
  const Axis context = writer.mesh().context();
  if (writer.mesh().size(context) == 1) return std::nullopt;
  const auto scope = writer.builder.scope("positions", Block::attention);
  const Value gathered =
      convert(writer.builder, positions, context, Placement::sharded, replicated());
  writer.builder.keep(gathered, Keep::layer);  // for all layers, like the table of angles
  return gathered;
}

/// Writes one chunk, in the order above.
class ChunkWriter {
 public:
  ChunkWriter(Chunk& chunk, const ModelConfig& config, DType compute, const ProgramSize& size,
              const ChunkRange& range, const ExpertLayout& experts, const CutUnits* cut_units)
      : chunk_(chunk),
        builder_(chunk.program),
        writer_{.builder = builder_,
                .config = config,
                .compute = compute,
                .layout = distribute_tokens(chunk.program.mesh(), size.sequences),
                .experts = experts,
                .pins_choices = size.pinned_choices,
                .changes_biases = true,
                .parameters = ParameterList(cut_units, /*trains=*/true)},
        size_(size),
        range_(range) {}

  void write(const Recompute& recompute) {
    declare();
    const LayerWriter layers = write_forward();
    write_router_losses(layers.routed());
    if (range_.head) write_loss();
    chunk_.outline.parameters = std::move(writer_.parameters);
    write_backward();
    chunk_.outline.parameters.note_gradients(chunk_.program);
    rematerialize(builder_, recompute);
  }

 private:
  Spec scalar() const { return {{1}, writer_.wide(), {}}; }

  void declare() {
    chunk_.outline.experts = writer_.config.experts;
    chunk_.outline.balance_rate = writer_.config.balance_bias_rate;
    chunk_.target_seed = builder_.state("target_seed", scalar());
    chunk_.token_seed = builder_.state("token_seed", scalar());
    if (writer_.config.balance_biases == BiasBalancing::controller) {
      writer_.balance_step = builder_.input("balance_step", {{1}, DType::f64, {}});
      chunk_.balance_step = writer_.balance_step;
    }
    chunk_.batch = declare_batch(builder_, size_, writer_.layout, range_.embedding, range_.head);
    if (range_.embedding) return;
    chunk_.boundary_in = boundary("boundary_in", range_.layers.first);
    declare_balance_sums(writer_, "boundary_in", range_.layers.first, chunk_.boundary_in);
  }

  /// Declares, as inputs, the values that pass between two chunks before layer `layer`.
  Boundary boundary(const std::string& name, int64_t layer) {
    return boundary_inputs(writer_, name, {size_.sequences * size_.context}, layer);
  }

  LayerWriter write_forward() {
    const AttentionInputs inputs = attention_inputs(writer_, chunk_.batch, size_);
    if (range_.embedding) embedded_ = write_embedding(writer_, chunk_.batch.tokens);
    LayerWriter layers = embedded_ ? LayerWriter(writer_, embedded_->stream)
                                   : LayerWriter(writer_, chunk_.boundary_in, range_.layers.first);
    layers.write(range_.layers, inputs);
    if (range_.head) {
      hidden_ = layers.final_norm();
    } else {
      chunk_.boundary_out = layers.end();
      for (const Value value : chunk_.boundary_out.values()) builder_.output(value);
    }
    return layers;
  }

  /// Declares the state of a sum and writes the addition of a value to it. Returns the state: the
  /// sum over the micro-batches so far. Each rank may have its own part of it.
  Value add_up(const StepSum& sum, Value value) {
    const Value state = builder_.state(sum.name, {sum.shape, DType::f64, sum.distribution});
    add_to_sum(builder_, state, value);
    return state;
  }
  StepSum scalar_sum(const std::string& name, Value value) {
    StepSum sum{name, {1}, sum_distribution(value)};
    add_up(sum, value);
    return sum;
  }

  /// Returns the distribution of a sum of a value's elements: partial over the axes on which ranks
  /// have their own elements.
  Distribution sum_distribution(Value value) const {
    const Distribution& distribution = builder_.spec(value).distribution;
    Distribution result(distribution.view());
    for (const Axis axis : builder_.program().mesh().axes_of(distribution.view())) {
      const TypeOnAxis& type = distribution.on(axis);
      const bool own_elements = type.split() || type.placement == Placement::partial;
      result = result.with(axis, own_elements ? partial() : invariant());
    }
    return result;
  }

  void write_router_losses(const std::vector<RoutedLayer>& routed) {
    const ModelConfig& config = writer_.config;
    const auto scope = builder_.scope("router_losses", Block::router);
    std::vector<Value> z_losses, tokens_so_far;
    int64_t layer_index = std::max(range_.layers.first, config.dense_layers);
    for (const RoutedLayer& layer : routed) {
      chunk_.outline.sums.expert_tokens.push_back(
          {fmt::format("sum:expert_tokens.{}", layer_index++), builder_.spec(layer.counts).shape,
           sum_distribution(layer.counts)});
      tokens_so_far.push_back(add_up(chunk_.outline.sums.expert_tokens.back(), layer.counts));
      if (!layer.balance_unit.empty()) chunk_.outline.balance_units.push_back(layer.balance_unit);
      if (layer.pinned) chunk_.batch.choices.push_back(*layer.pinned);
      if (config.router_z_coefficient > 0) {
        z_losses.push_back(router_z_loss(builder_, layer.logits, config.router_z_coefficient));
      }
    }
    if (config.balance_coefficient > 0 && !routed.empty()) {
      note_balance_loss(write_balance_loss(writer_, routed, tokens_so_far, chunk_.boundary_in,
                                           range_.layers.end));
    }
    if (!z_losses.empty()) {
      chunk_.router_z_loss = add(builder_, z_losses, writer_.wide());
      builder_.output(chunk_.router_z_loss);
      chunk_.outline.sums.router_z = scalar_sum("sum:router_z_loss", chunk_.router_z_loss);
    }
  }

  /// Makes the balance loss an output, or the sums for it, which another chunk gets.
  void note_balance_loss(const BalanceResults& results) {
    if (!results.loss) {
      chunk_.boundary_out.probability_sums = results.passed_on.probability_sums;
      chunk_.boundary_out.counts = results.passed_on.counts;
      builder_.output(chunk_.boundary_out.probability_sums);
      builder_.output(chunk_.boundary_out.counts);
      return;
    }
    chunk_.balance_loss = *results.loss;
    builder_.output(chunk_.balance_loss);
    chunk_.outline.sums.balance = scalar_sum("sum:balance_loss", chunk_.balance_loss);
  }

  void write_loss() {
    const Value weight = head_matrix(writer_, embedded_ ? embedded_->table : Value{});
    const auto scope = builder_.scope("head", Block::head);
    const Value hidden = writer_.gather_positions(hidden_);
    loss_seed_ = use_like(builder_, chunk_.target_seed, chunk_.batch.targets);
    const CrossEntropy result = linear_cross_entropy_with_gradient(
        builder_, hidden, use_like(builder_, weight, chunk_.batch.targets), chunk_.batch.targets,
        loss_seed_, writer_.config.z_loss_coefficient);
    // `loss` is for the gradient. The reported loss is the sum of `token_loss`, without the z-loss.
    chunk_.loss = result.loss;
    chunk_.token_loss = result.token_loss;
    builder_.output(chunk_.loss);
    builder_.output(chunk_.token_loss);
    const auto sums = builder_.scope("sums", Block::loss);
    chunk_.outline.sums.cross_entropy = scalar_sum("sum:cross_entropy", chunk_.token_loss);
  }

  void write_backward() {
    std::vector<Seed> seeds;
    if (chunk_.loss) seeds.push_back({chunk_.loss, loss_seed_});
    for (const Value loss : {chunk_.balance_loss, chunk_.router_z_loss}) {
      if (loss) seeds.push_back({loss, use_like(builder_, chunk_.token_seed, loss)});
    }
    if (!range_.head) {
      chunk_.boundary_out_gradients = boundary("of_boundary_out", range_.layers.end);
      declare_balance_gradients(writer_, "of_boundary_out", range_.layers.end,
                                chunk_.boundary_out_gradients);
      const std::vector<Value> results = with_gradients(chunk_.boundary_out).values();
      const std::vector<Value> gradients = chunk_.boundary_out_gradients.values();
      TESSERA_CHECK(results.size() == gradients.size(), "{} values pass on, {} gradients come back",
                    results.size(), gradients.size());
      for (size_t i = 0; i < results.size(); ++i) {
        seeds.push_back({results[i], gradients[i], SeedKind::boundary});
      }
    }
    if (range_.embedding) {
      differentiate(builder_, seeds);
      return;
    }
    const std::vector<Value> gradients =
        differentiate(builder_, seeds, with_gradients(chunk_.boundary_in).values());
    for (const Value gradient : gradients) {
      TESSERA_CHECK(bool(gradient), "the chunk's results do not depend on one of its inputs");
      builder_.output(gradient);
    }
    // In the order of Boundary::values(), which leaves null values out.
    const Boundary& in = chunk_.boundary_in;
    auto next = gradients.begin();
    chunk_.boundary_in_gradients.stream = *next++;
    if (in.output) chunk_.boundary_in_gradients.output = *next++;
    if (in.router) chunk_.boundary_in_gradients.router = *next++;
    if (in.probability_sums) chunk_.boundary_in_gradients.probability_sums = *next++;
  }

  /// Returns the values of a boundary that have gradients: all but the counts.
  static Boundary with_gradients(Boundary boundary) {
    boundary.counts = {};
    return boundary;
  }

  Chunk& chunk_;
  Builder builder_;
  ModelWriter writer_;
  const ProgramSize& size_;
  const ChunkRange& range_;
  std::optional<Embedded> embedded_;
  Value hidden_;     // [tokens, hidden], normalised
  Value loss_seed_;  // the target seed, in the distribution of the loss's gradient
};

}  // namespace

BatchValues declare_batch(Builder& builder, const ProgramSize& size,
                          const TokenDistribution& layout, bool embedding, bool head) {
  const Program& program = builder.program();
  const Shape whole{size.sequences * size.context};
  const Shape own = TensorPiece(program.mesh(), layout.tokens, whole, program.rank()).shape();
  const Spec ids{own, DType::i32, layout.tokens};  // [tokens of this rank]
  BatchValues values;
  if (embedding) values.tokens = builder.input("tokens", ids);
  if (head) values.targets = builder.input("targets", ids);
  values.positions = builder.input("positions", ids);
  if (size.document_mask) values.document_starts = builder.input("document_starts", ids);
  return values;
}

AttentionInputs attention_inputs(ModelWriter& writer, const BatchValues& batch,
                                 const ProgramSize& size) {
  return {.sequence = size.context / writer.mesh().size(writer.mesh().context()),
          .positions = batch.positions,
          .key_positions = gathered_positions(writer, batch.positions),
          .rotary_table = table_of_angles(writer, batch.positions),
          .document_starts = batch.document_starts,
          .cache_position = {}};
}

ChunkRange whole_model(const ModelConfig& config) { return {.layers = {0, config.layers}}; }

bool uses(const ChunkRange& range, const ModelConfig& config, const ParameterSpec& parameter) {
  if (parameter.unit == kEmbeddingUnit) {
    return range.embedding || (range.head && config.tied_head);
  }
  if (parameter.unit == kHeadUnit) return range.head;
  for (int64_t layer = range.layers.first; layer < range.layers.end; ++layer) {
    const std::string unit = layer_unit(layer);
    if (parameter.unit == unit || parameter.unit.starts_with(unit + ".")) return true;
  }
  return false;
}

std::vector<StepSum> StepSums::all() const {
  std::vector<StepSum> result;
  for (const auto* sum : {&cross_entropy, &balance, &router_z}) {
    if (*sum) result.push_back(**sum);
  }
  result.insert(result.end(), expert_tokens.begin(), expert_tokens.end());
  return result;
}

Chunk write_chunk(const ModelConfig& config, DType compute, const ProgramSize& size,
                  const Recompute& recompute, const ChunkRange& range, const MeshRank& mesh_rank,
                  const ExpertLayout& experts, const CutUnits* cut_units) {
  Chunk chunk{.program = Program(mesh_rank.mesh, mesh_rank.rank)};
  ChunkWriter(chunk, config, compute, size, range, experts, cut_units).write(recompute);
  return chunk;
}

Chunk write_training(const ModelConfig& config, DType compute, const ProgramSize& size,
                     const Recompute& recompute, const MeshRank& mesh_rank,
                     const ExpertLayout& experts) {
  return write_chunk(config, compute, size, recompute, whole_model(config), mesh_rank, experts);
}

}  // namespace tessera
