#include "model/mixture.h"

#include <algorithm>
#include <cmath>

#include "model/feed_forward.h"
#include "ops/activation/activation.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/moe/drop_over_capacity.h"
#include "ops/moe/exchange.h"
#include "ops/moe/gather_tokens.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/reduce_experts.h"
#include "ops/moe/routing.h"
#include "ops/router/router.h"

namespace tessera {
namespace {

struct Routing {
  Value logits;
  Value probabilities;
  std::optional<Value> pinned;  // choices that are an input
  RouterSelection selection;
};

Routing route(ModelWriter& writer, Value x) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("router", Block::router);
  const Value weight = use_like(
      builder,
      writer.matrix("weight", {config.experts, config.hidden_size}, {}, ParameterRole::router), x);
  const Value logits = linear(builder, cast(builder, x, writer.wide()), weight);
  const Value probabilities = router_softmax(builder, logits);
  // The router losses come after all layers, so their gradients come first. If these small values
  // were not kept, those gradients would make every recomputed layer run again at once.
  builder.keep(logits, Keep::layer);
  builder.keep(probabilities, Keep::layer);
  const TopKOptions options{.k = config.experts_per_token,
                            .renormalise = config.renormalise_weights,
                            .forced_uniform = config.forced_uniform_routing};
  std::optional<Value> pinned;
  if (writer.pins_choices) {
    Spec choices = builder.spec(probabilities);
    choices.shape = choices.shape.with_dim(1, config.experts_per_token);
    choices.dtype = DType::i32;
    pinned = builder.input(builder.qualified("choices"), choices);
  }
  return {logits, probabilities, pinned, router_top_k(builder, probabilities, options, pinned)};
}

/// Writes the experts of a layer. Their tokens are in the expert view.
class ExpertsWriter {
 public:
  ExpertsWriter(ModelWriter& writer, const ExpertLayout& layout, Value x,
                const RouterSelection& selection)
      : writer_(writer),
        config_(writer.config),
        builder_(writer.builder),
        mesh_(builder_.program().mesh()),
        layout_(layout),
        split_(builder_.spec(x).distribution.on(mesh_.tensor()).split()),
        drops_here_(split_ && config_.capacity_factor > 0 && view_ranks() > 1),
        x_(in_expert_view(x)),
        weights_(in_expert_view(selection.weights)),
        chosen_(in_expert_view(selection.indices)),
        indices_(drops_here_ ? in_expert_view(within_capacity(selection.indices)) : chosen_),
        tokens_(builder_.spec(x_).distribution) {}

  /// The chosen experts' weighted outputs, in the view of x, and how many tokens chose each.
  struct Result {
    Value output;
    Value counts;
  };
  Result write() {
    require_equal_parts();
    const Result result = sends_rows() ? write_all_to_all() : write_all_gather();
    return {split_ ? cross(builder_, result.output, MeshView::dense) : result.output,
            sum_over_ranks(drops_here_ ? counts_before_dropping() : result.counts)};
  }

 private:
  Axis axis() const { return mesh_.expert(); }
  int ranks() const { return mesh_.size(axis()); }
  int view_ranks() const { return ranks() * mesh_.size(mesh_.expert_data()); }
  int64_t local_experts() const { return config_.experts / ranks(); }
  void require_equal_parts() const {
    if (config_.experts % ranks() == 0) return;
    throw Error(
        "model.experts = {} do not divide into the {} parts of parallel.expert; give one "
        "that divides them",
        config_.experts, ranks());
  }
  bool sends_rows() const {
    if (!split_ || layout_.exchange == ExpertExchange::all_gather) return false;
    return layout_.exchange == ExpertExchange::all_to_all || config_.experts_per_token < ranks();
  }
  Value in_expert_view(Value value) {
    return split_ ? cross(builder_, value, MeshView::expert) : value;
  }

  RoutingOptions options() const {
    RoutingOptions options{.experts = config_.experts};
    if (config_.capacity_factor > 0 && !drops_here_) {
      options.capacity_factor = config_.capacity_factor;
    }
    return options;
  }
  int received_identity() const { return 2 * builder_.layer(); }
  int sent_identity() const { return 2 * builder_.layer() + 1; }

  /// The rows of this rank's experts: as many as can come, or those of the configured bound.
  RowBound row_bound() const {
    const int64_t tokens = builder_.spec(indices_).shape[0];
    const int64_t k = config_.experts_per_token;
    const int64_t most = tokens * ranks() * std::min(k, local_experts());
    RowBound bound{.rows = most, .balanced = tokens * k, .key = "parallel.expert_rows_bound"};
    if (layout_.rows_bound > 0) {
      const auto limit =
          std::ceil(layout_.rows_bound * static_cast<double>(bound.balanced) * (1 - 1e-12));
      bound.rows = std::min(most, static_cast<int64_t>(limit));
    }
    return bound;
  }

  /// The choices of this rank's tokens, in the dense view, without those beyond the capacity. If
  /// that is of the micro-batch, every rank sees the choices of all.
  Value within_capacity(Value indices) {
    const Distribution own = builder_.spec(indices).distribution;
    const std::span<const Axis> axes = own.order(0);
    const bool gathers = layout_.capacity_tokens == TokenSet::micro_batch;
    for (size_t i = axes.size(); gathers && i-- > 0;) {
      indices = convert(builder_, indices, axes[i], Placement::sharded, invariant());
    }
    indices = drop_over_capacity(builder_, indices, config_.experts, config_.capacity_factor,
                                 layout_.capacity_tokens);
    for (size_t i = 0; gathers && i < axes.size(); ++i) {
      indices = convert(builder_, indices, axes[i], Placement::invariant, own.on(axes[i]));
    }
    return indices;
  }

  Value counts_before_dropping() {
    const RoutingOptions all{
        .experts = config_.experts, .local_experts = config_.experts, .identity = sent_identity()};
    return token_counts(builder_, chosen_, all).counts;
  }

  /// Each rank gets the tokens of all that share the experts, and takes those of its own.
  Result write_all_gather() {
    const Value x = gathered(x_), weights = gathered(weights_), chosen = gathered(indices_);
    RoutingOptions routing = options();
    routing.local_experts = split_ ? local_experts() : config_.experts;
    if (split_) {
      routing.first_expert =
          routing.local_experts * mesh_.coordinate(builder_.program().rank(), axis());
      routing.expert_axis = axis();
      routing.identity = received_identity();
      if (ranks() > 1) routing.row_bound = row_bound();
    }
    const TokenCounts counts = token_counts(builder_, chosen, routing);
    const TokenIndices rows = token_indices(builder_, chosen, counts, routing);
    const Matrices matrices = declare();
    const Value results =
        apply(matrices, gather_tokens(builder_, x, rows), counts.offsets);  // [rows, hidden]
    Value output = reduce_experts(builder_, results, weights, rows);
    if (split_) {
      output = convert(builder_, output, axis(), Placement::partial, tokens_.on(axis()));
    }
    return {output, counts.counts};
  }

  Value gathered(Value value) {
    if (!split_) return value;
    return convert(builder_, value, axis(), Placement::varying, replicated());
  }

  /// Each rank sends its tokens to the ranks of their experts.
  Result write_all_to_all() {
    RoutingOptions routing = options();
    routing.local_experts = config_.experts;
    routing.identity = sent_identity();
    const TokenCounts counts = token_counts(builder_, indices_, routing);
    const TokenIndices rows = token_indices(builder_, indices_, counts, routing);
    const Matrices matrices = declare();
    const RowExchange exchange =
        exchange_counts(builder_, counts.offsets,
                        {.axis = axis(),
                         .local_experts = local_experts(),
                         .sent_rows = builder_.spec(indices_).shape.elements(),
                         .bound = row_bound(),
                         .sent_identity = sent_identity(),
                         .received_identity = received_identity()});
    const Value sent = gather_tokens(builder_, x_, rows);  // [tokens · k, hidden]
    const Value results = apply(matrices, exchange_rows(builder_, sent, exchange),
                                exchange.offsets);  // [bound, hidden]
    return {reduce_experts(builder_, return_rows(builder_, results, exchange), weights_, rows),
            counts.counts};
  }

  struct Matrices {
    std::vector<Value> inward;  ///< gate and up, [experts, expert size, hidden]
    Value outward;              ///< down, [experts, hidden, expert size]
  };
  Matrices declare() {
    const std::string dense_unit = writer_.unit;
    writer_.unit = dense_unit + ".experts";
    Distribution experts;
    if (split_) experts = Distribution(MeshView::expert).with(axis(), sharded(0));
    const Shape inward{config_.experts, config_.expert_size, config_.hidden_size};
    const Shape outward{config_.experts, config_.hidden_size, config_.expert_size};
    Matrices matrices{{writer_.matrix("gate", inward, experts, ParameterRole::expert),
                       writer_.matrix("up", inward, experts, ParameterRole::expert)},
                      writer_.output_matrix("down", outward, experts, ParameterRole::expert)};
    writer_.unit = dense_unit;
    for (Value* matrix : {&matrices.inward[0], &matrices.inward[1], &matrices.outward}) {
      if (split_) *matrix = use(builder_, *matrix, std::vector{mesh_.expert_data()});
    }
    return matrices;
  }

  Value apply(const Matrices& matrices, Value rows, Value offsets) {
    const std::vector<Value> projections = grouped_linear(builder_, rows, matrices.inward, offsets);
    const Value activated =
        gated_activation(builder_, projections[0], projections[1], config_.activation);
    return grouped_linear(builder_, activated, std::vector{matrices.outward}, offsets)[0];
  }

  /// The counts of all ranks' tokens, in the dense view.
  Value sum_over_ranks(Value counts) {
    if (!split_) return counts;
    for (const Axis over : mesh_.of_view(MeshView::expert)) {
      const Placement placement = builder_.spec(counts).distribution.on(over).placement;
      counts = convert(builder_, counts, over, placement, invariant());
    }
    return cross(builder_, counts, MeshView::dense);
  }

  ModelWriter& writer_;
  const ModelConfig& config_;
  Builder& builder_;
  const Mesh& mesh_;
  const ExpertLayout& layout_;
  const bool split_;       ///< whether ranks have their own tokens
  const bool drops_here_;  ///< whether choices are dropped before they reach the experts
  Value x_, weights_;
  Value chosen_, indices_;  ///< before and after dropping
  Distribution tokens_;     ///< of x_
};

}  // namespace

RoutedLayer mixture_of_experts(ModelWriter& writer, Value x, const ExpertLayout& layout) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const Routing routing = route(writer, x);
  const auto routed = [&] {
    const auto scope = builder.scope("experts", Block::experts);
    return ExpertsWriter(writer, layout, x, routing.selection).write();
  }();
  Value output = routed.output;
  if (config.shared_experts > 0) {
    const Value shared =
        feed_forward(writer, "shared_experts", config.shared_experts * config.expert_size, x);
    const auto scope = builder.scope("shared_experts", Block::feed_forward);
    output = add(builder, std::vector{routed.output, shared}, writer.compute);
  }
  return {output, routing.logits, routing.probabilities, routed.counts, routing.pinned};
}

}  // namespace tessera
