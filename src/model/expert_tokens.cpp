#include "model/expert_tokens.h"

#include <vector>

#include "ops/collective/convert.h"
#include "ops/collective/move.h"
#include "ops/moe/drop_over_capacity.h"
#include "ops/moe/routing.h"
#include "ops/router/split_tokens.h"

namespace tessera {
namespace {

/// Returns the choices of this rank's tokens, in the dense view, without those beyond the capacity.
/// If the capacity is of the micro-batch, every rank gathers the choices of all ranks first.
Value within_capacity(ModelWriter& writer, TokenSet set, Value indices) {
  Builder& builder = writer.builder;
  const Distribution own = builder.spec(indices).distribution;
  const std::span<const Axis> axes = own.order(0);
  const bool gathers = set == TokenSet::micro_batch;
  for (size_t i = axes.size(); gathers && i-- > 0;) {
    indices = convert(builder, indices, axes[i], Placement::sharded, invariant());
  }
  indices = drop_over_capacity(builder, indices, writer.config.experts,
                               writer.config.capacity_factor, set);
  for (size_t i = 0; gathers && i < axes.size(); ++i) {
    indices = convert(builder, indices, axes[i], Placement::invariant, own.on(axes[i]));
  }
  return indices;
}

}  // namespace

ExpertTokens tokens_for_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                                const RouterSelection& selection) {
  Builder& builder = writer.builder;
  const Mesh& mesh = writer.mesh();
  const bool split = builder.spec(x).distribution.on(mesh.tensor()).split();
  const bool several = mesh.ranks() > mesh.size(mesh.pipeline());
  const auto in_expert_view = [&](Value value) {
    return split ? cross(builder, value, MeshView::expert) : value;
  };
  ExpertTokens tokens;
  tokens.split = split;
  tokens.sent_rows = builder.new_exchange();
  tokens.received_rows = builder.new_exchange();
  tokens.dropped = split && several && writer.config.capacity_factor > 0;
  tokens.x = in_expert_view(x);
  tokens.weights = in_expert_view(selection.weights);
  tokens.chosen = in_expert_view(selection.indices);
  tokens.kept = tokens.chosen;
  if (tokens.dropped) {
    tokens.kept =
        in_expert_view(within_capacity(writer, layout.capacity_tokens, selection.indices));
  }
  return tokens;
}

Value counts_of_all(ModelWriter& writer, const ExpertTokens& tokens, Value counts) {
  Builder& builder = writer.builder;
  const int64_t classes = writer.config.router_classes();
  if (tokens.dropped || classes > writer.config.experts) {
    counts = token_counts(
                 builder, tokens.chosen,
                 {.experts = classes, .local_experts = classes, .identity = builder.new_exchange()})
                 .counts;
  }
  if (!tokens.split) return counts;
  counts = sum_of_ranks(builder, counts, {Placement::invariant, Placement::replicated});
  for (const Axis over : writer.mesh().of_view(MeshView::expert)) {
    if (builder.spec(counts).distribution.on(over) == invariant()) continue;
    counts = convert(builder, counts, over, Placement::replicated, invariant());
  }
  const Value all = cross(builder, counts, MeshView::dense);
  // Kept, so that a recomputed layer does not repeat the collectives. One rank has none.
  if (writer.mesh().ranks() > 1) builder.keep(builder.program().base(all), Keep::layer);
  return all;
}

}  // namespace tessera
