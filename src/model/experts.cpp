// The experts of a mixture layer, for tokens whose experts the router has chosen:
//
// 1. The tokens cross to the expert view of the mesh (expert × expert_data), in which each rank has
//    its own tokens. Choices beyond a capacity may be dropped first.
// 2. The tokens reach their experts in one of three ways: write_local() if all tokens and experts
//    are on this rank, write_all_gather() or write_all_to_all() otherwise. Each expert's tokens
//    become consecutive rows of one matrix, so that a grouped linear map applies all experts.
// 3. Each token's results are added up, weighted by the router, and cross back to the dense view.
//
// An *exchange* is the movement of a layer's rows between ranks. Its rows have an identity (see
// Pieces::identity), so that the types refuse rows of one exchange with the indices of another.

#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/activation/activation.h"
#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/moe/drop_over_capacity.h"
#include "ops/moe/exchange.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/routing.h"
#include "ops/moe/token_rows.h"
#include "ops/router/split_tokens.h"

namespace tessera {
namespace {

/// A layer's tokens as its experts see them: in the expert view if ranks have their own tokens,
/// otherwise in the dense view.
struct ExpertTokens {
  Value x;                     // [tokens, hidden]
  Value weights;               // [tokens, k]: those of the chosen experts
  Value choices;               // i32 [tokens, k]: the chosen experts
  Value kept_choices;          // i32 [tokens, k]: the choices without dropped ones
  bool is_split = false;       // true if ranks have their own tokens
  bool has_dropped = false;    // true if choices beyond the capacity have been dropped
  int sent_identity = -1;      // of the rows that a rank makes of its own tokens
  int received_identity = -1;  // of the rows that its experts receive
};

/// Returns the choices of this rank's tokens, in the dense view, without those beyond the capacity.
/// If the capacity is of the micro-batch, every rank gathers the choices of all ranks first.
Value within_capacity(ModelWriter& writer, TokenSet set, Value indices) {
  Builder& builder = writer.builder;
  const Distribution before = builder.spec(indices).distribution;
  const std::span<const Axis> axes = before.order(0);
  const bool gathers = set == TokenSet::micro_batch;
  for (size_t i = axes.size(); gathers && i-- > 0;) {
    indices = convert(builder, indices, axes[i], Placement::sharded, invariant());
  }
  indices = drop_over_capacity(builder, indices, writer.config.experts,
                               writer.config.capacity_factor, set);
  for (size_t i = 0; gathers && i < axes.size(); ++i) {
    indices = convert(builder, indices, axes[i], Placement::invariant, before.on(axes[i]));
  }
  return indices;
}

/// Returns a layer's tokens after they crossed to the expert view. Choices beyond a capacity are
/// dropped here if several ranks have their own tokens. On one rank token_counts() drops them.
ExpertTokens tokens_for_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                                const RouterSelection& selection) {
  Builder& builder = writer.builder;
  const Mesh& mesh = writer.mesh();
  const bool is_split = builder.spec(x).distribution.on(mesh.tensor()).split();
  const bool several_ranks = mesh.ranks() > mesh.size(mesh.pipeline());  // in a pipeline stage
  const auto in_expert_view = [&](Value value) {
    return is_split ? cross(builder, value, MeshView::expert) : value;
  };
  ExpertTokens tokens;
  tokens.is_split = is_split;
  tokens.sent_identity = builder.new_exchange();
  tokens.received_identity = builder.new_exchange();
  tokens.has_dropped = is_split && several_ranks && writer.config.capacity_factor > 0;
  tokens.x = in_expert_view(x);
  tokens.weights = in_expert_view(selection.weights);
  tokens.choices = in_expert_view(selection.indices);
  tokens.kept_choices = tokens.choices;
  if (tokens.has_dropped) {
    tokens.kept_choices =
        in_expert_view(within_capacity(writer, layout.capacity_tokens, selection.indices));
  }
  return tokens;
}

/// Returns the tokens that chose each class, on all ranks (ExpertResults::counts). `counts`, i32
/// [experts], counts this rank's kept choices.
Value counts_of_all_ranks(ModelWriter& writer, const ExpertTokens& tokens, Value counts) {
  Builder& builder = writer.builder;
  const int64_t classes = writer.config.router_classes();
  // These counts lack choices that were dropped before, and the skip class.
  if (tokens.has_dropped || classes > writer.config.experts) {
    counts = token_counts(
                 builder, tokens.choices,
                 {.experts = classes, .local_experts = classes, .identity = builder.new_exchange()})
                 .counts;
  }
  if (!tokens.is_split) return counts;
  counts = sum_of_ranks(builder, counts, {Placement::invariant, Placement::replicated});
  for (const Axis axis : writer.mesh().axes_of(MeshView::expert)) {
    if (builder.spec(counts).distribution.on(axis) == invariant()) continue;
    counts = convert(builder, counts, axis, Placement::replicated, invariant());
  }
  const Value dense_counts = cross(builder, counts, MeshView::dense);
  // Kept, so that a recomputed layer does not repeat the collectives. One rank has none.
  if (writer.mesh().ranks() > 1) builder.keep(builder.program().base(dense_counts), Keep::layer);
  return dense_counts;
}

/// The matrices of a layer's experts, in the distribution that this rank's rows need.
struct ExpertMatrices {
  std::vector<Value> inward;  // gate and up, [experts, expert size, hidden]
  Value outward;              // down, [experts, hidden, expert size]
};

/// Declares the matrices, in a unit of their own, and returns them. If `is_split`, ranks have their
/// own tokens: the matrices are split by experts over the expert axis, and invariant over
/// expert_data.
ExpertMatrices declare_experts(ModelWriter& writer, bool is_split) {
  const ModelConfig& config = writer.config;
  const Mesh& mesh = writer.mesh();
  const std::string dense_unit = writer.unit;
  writer.unit = dense_unit + ".experts";
  Distribution distribution;
  if (is_split) distribution = Distribution(MeshView::expert).with(mesh.expert(), sharded(0));
  const Shape inward{config.experts, config.expert_size, config.hidden_size};
  const Shape outward{config.experts, config.hidden_size, config.expert_size};
  constexpr ParameterRole kRole = ParameterRole::expert;
  ExpertMatrices matrices{{writer.matrix("gate", inward, distribution, kRole),
                           writer.matrix("up", inward, distribution, kRole)},
                          writer.output_matrix("down", outward, distribution, kRole)};
  writer.unit = dense_unit;
  for (Value* matrix : {&matrices.inward[0], &matrices.inward[1], &matrices.outward}) {
    if (is_split) *matrix = use(writer.builder, *matrix, mesh.expert_data());
  }
  return matrices;
}

/// Returns the experts' outputs, [rows, hidden]. Each expert's rows begin at its offset.
Value apply_experts(ModelWriter& writer, const ExpertMatrices& matrices, Value rows,
                    Value offsets) {
  Builder& builder = writer.builder;
  const std::vector<Value> projections =
      grouped_linear(builder, rows, matrices.inward, offsets);  // [rows, expert size] each
  const Value activated =
      gated_activation(builder, projections[0], projections[1], writer.config.activation, offsets);
  return grouped_linear(builder, activated, std::vector{matrices.outward}, offsets)[0];
}

/// The experts' axis of a program's mesh, and the number of experts on each of its ranks.
struct ExpertAxis {
  explicit ExpertAxis(const ModelWriter& writer)
      : axis(writer.mesh().expert()),
        ranks(writer.mesh().size(axis)),
        local_experts(writer.config.experts / ranks) {
    if (writer.config.experts % ranks == 0) return;
    throw Error(
        "model.experts = {} do not divide into the {} parts of parallel.expert; give one "
        "that divides them",
        writer.config.experts, ranks);
  }
  Axis axis;
  int ranks;
  int64_t local_experts;
};

/// Returns the bound on the rows of this rank's experts: the configured one, but at most the
/// largest possible number.
RowBound row_bound(const ModelWriter& writer, const ExpertLayout& layout,
                   const ExpertTokens& tokens, const ExpertAxis& experts) {
  const int64_t own_tokens = writer.builder.spec(tokens.kept_choices).shape[0];
  const int64_t k = writer.config.experts_per_token;
  const int64_t largest = own_tokens * experts.ranks * std::min(k, experts.local_experts);
  RowBound bound{.rows = largest, .balanced = own_tokens * k, .key = "parallel.expert_rows_bound"};
  if (layout.rows_bound > 0) {
    // A product that is a whole number must not be rounded up because of its rounding error.
    constexpr double kRounding = 1e-12;
    const auto limit =
        std::ceil(layout.rows_bound * static_cast<double>(bound.balanced) * (1 - kRounding));
    bound.rows = std::min(largest, static_cast<int64_t>(limit));
  }
  return bound;
}

/// Returns the options by which choices become the rows of all experts. Choices beyond a capacity
/// are dropped there unless they have been dropped before.
RoutingOptions routing_of(const ModelConfig& config, const ExpertTokens& tokens) {
  RoutingOptions options{.experts = config.experts, .local_experts = config.experts};
  if (config.capacity_factor > 0 && !tokens.has_dropped) {
    options.capacity_factor = config.capacity_factor;
  }
  return options;
}

/// The experts' results, in the view of the mesh that their tokens have. `counts`, i32 [experts],
/// is this rank's count of kept choices.
struct WeightedOutputs {
  Value output;  // [tokens, hidden]
  Value counts;
};

/// Writes the experts of this rank, for tokens that are all on this rank.
WeightedOutputs write_local(ModelWriter& writer, const ExpertTokens& tokens,
                            const RoutingOptions& routing) {
  Builder& builder = writer.builder;
  const TokenCounts counts = token_counts(builder, tokens.kept_choices, routing);
  const TokenIndices rows = token_indices(builder, tokens.kept_choices, counts, routing);
  const ExpertMatrices matrices = declare_experts(writer, tokens.is_split);
  const Value results = apply_experts(writer, matrices, gather_tokens(builder, tokens.x, rows),
                                      counts.offsets);  // [rows, hidden]
  return {reduce_experts(builder, results, tokens.weights, rows), counts.counts};
}

/// Writes the experts with an all-gather: each rank gets the tokens of all ranks that share the
/// experts, and its experts take their rows of them. The ranks' results are summed by a
/// reduce-scatter, after which each rank has those of its own tokens.
WeightedOutputs write_all_gather(ModelWriter& writer, const ExpertLayout& layout,
                                 const ExpertTokens& tokens, const ExpertAxis& experts) {
  Builder& builder = writer.builder;
  const auto gathered = [&](Value value) {
    return convert(builder, value, experts.axis, Placement::varying, replicated());
  };
  ExpertTokens gathered_tokens = tokens;
  gathered_tokens.x = gathered(tokens.x);
  gathered_tokens.weights = gathered(tokens.weights);
  gathered_tokens.kept_choices = gathered(tokens.kept_choices);
  RoutingOptions routing = routing_of(writer.config, tokens);
  routing.local_experts = experts.local_experts;
  routing.first_expert =
      experts.local_experts * writer.mesh().coordinate(builder.program().rank(), experts.axis);
  routing.expert_axis = experts.axis;
  routing.identity = tokens.received_identity;
  if (experts.ranks > 1) routing.row_bound = row_bound(writer, layout, tokens, experts);
  WeightedOutputs results = write_local(writer, gathered_tokens, routing);
  results.output = convert(builder, results.output, experts.axis, Placement::partial,
                           builder.spec(tokens.x).distribution.on(experts.axis));
  return results;
}

/// Writes the experts with an all-to-all: each rank sends its tokens to the ranks of their experts,
/// which send the results back.
WeightedOutputs write_all_to_all(ModelWriter& writer, const ExpertLayout& layout,
                                 const ExpertTokens& tokens, const ExpertAxis& experts) {
  Builder& builder = writer.builder;
  RoutingOptions routing = routing_of(writer.config, tokens);
  routing.identity = tokens.sent_identity;
  const TokenCounts counts = token_counts(builder, tokens.kept_choices, routing);
  const TokenIndices rows = token_indices(builder, tokens.kept_choices, counts, routing);
  const ExpertMatrices matrices = declare_experts(writer, tokens.is_split);
  const RowExchange exchange =
      exchange_counts(builder, counts.offsets,
                      {.axis = experts.axis,
                       .local_experts = experts.local_experts,
                       .sent_rows = builder.spec(tokens.kept_choices).shape.elements(),
                       .bound = row_bound(writer, layout, tokens, experts),
                       .sent_identity = tokens.sent_identity,
                       .received_identity = tokens.received_identity});
  const Value sent = gather_tokens(builder, tokens.x, rows);  // [tokens · k, hidden]
  const Value results = apply_experts(writer, matrices, exchange_rows(builder, sent, exchange),
                                      exchange.offsets);  // [bound, hidden]
  return {reduce_experts(builder, return_rows(builder, results, exchange), tokens.weights, rows),
          counts.counts};
}

/// Writes the experts, with the exchange that the layout names.
WeightedOutputs write_exchanged(ModelWriter& writer, const ExpertLayout& layout,
                                const ExpertTokens& tokens) {
  const ExpertAxis experts(writer);
  if (!tokens.is_split) return write_local(writer, tokens, routing_of(writer.config, tokens));
  return layout.sends_rows(writer.config.experts_per_token, experts.ranks)
             ? write_all_to_all(writer, layout, tokens, experts)
             : write_all_gather(writer, layout, tokens, experts);
}

}  // namespace

ExpertResults write_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                            const RouterSelection& selection) {
  const auto scope = writer.builder.scope("experts", Block::experts);
  const ExpertTokens tokens = tokens_for_experts(writer, layout, x, selection);
  WeightedOutputs results = write_exchanged(writer, layout, tokens);
  if (tokens.is_split) results.output = cross(writer.builder, results.output, MeshView::dense);
  return {results.output, counts_of_all_ranks(writer, tokens, results.counts)};
}

}  // namespace tessera
