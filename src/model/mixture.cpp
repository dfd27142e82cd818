#include "model/mixture.h"

#include "model/balance.h"
#include "model/expert_ways.h"
#include "model/feed_forward.h"
#include "model/router.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/moe/skip_class.h"

namespace tessera {
namespace {

/// Writes the experts of a layer, with the crossings from the dense view to the expert view and
/// back.
ExpertResults cross_to_experts(ModelWriter& writer, const ExpertLayout& layout, Value x,
                               const RouterSelection& selection) {
  const auto scope = writer.builder.scope("experts", Block::experts);
  const ExpertTokens tokens = tokens_for_experts(writer, layout, x, selection);
  ExpertResults results = write_experts(writer, layout, tokens);
  if (tokens.split) results.output = cross(writer.builder, results.output, MeshView::dense);
  results.counts = counts_of_all(writer, tokens, results.counts);
  return results;
}

}  // namespace

RoutedLayer mixture_of_experts(ModelWriter& writer, Value x, const ExpertLayout& layout,
                               std::optional<Value> previous) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const std::optional<BalanceBiases> balance = declare_balance_biases(writer);
  const Routing routing =
      route(writer, x, previous, balance ? std::optional(balance->biases) : std::nullopt);
  const ExpertResults routed = cross_to_experts(writer, layout, x, routing.selection);
  if (balance) follow_load(writer, *balance, routed.counts);
  Value output = routed.output;
  if (config.skip_expert == SkipExpert::input) {
    const auto scope = builder.scope("skip_expert", Block::experts);
    output = add_skipped(builder, output, x, routing.selection, config.experts);
  }
  if (config.shared_experts > 0) {
    const Value shared =
        feed_forward(writer, "shared_experts", config.shared_experts * config.expert_size, x);
    const auto scope = builder.scope("shared_experts", Block::feed_forward);
    output = add(builder, std::vector{output, shared}, writer.compute);
  }
  return {.output = output,
          .logits = routing.logits,
          .probabilities = routing.probabilities,
          .chosen = routing.selection.indices,
          .counts = routed.counts,
          .pinned = routing.pinned,
          .router_state = routing.state,
          .balance_unit = balance ? balance->unit : std::string()};
}

}  // namespace tessera
