#include "model/mixture.h"

#include "model/feed_forward.h"
#include "ops/activation/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
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
  RouterSelection selection;
};

Routing route(ModelWriter& writer, Value x) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("router", Block::router);
  const Value weight =
      writer.matrix("weight", {config.experts, config.hidden_size}, {}, ParameterRole::router);
  const Value logits = linear(builder, cast(builder, x, writer.wide()), weight);
  const Value probabilities = router_softmax(builder, logits);
  // The router losses come after all layers, so their gradients come first. If these small values
  // were not kept, those gradients would make every recomputed layer run again at once.
  builder.keep(logits, Keep::layer);
  builder.keep(probabilities, Keep::layer);
  const TopKOptions options{.k = config.experts_per_token,
                            .renormalise = config.renormalise_weights,
                            .forced_uniform = config.forced_uniform_routing};
  return {logits, probabilities, router_top_k(builder, probabilities, options)};
}

/// The chosen experts' weighted outputs, and how many tokens chose each.
struct RoutedExperts {
  Value output;
  Value counts;
};

RoutedExperts routed_experts(ModelWriter& writer, Value x, const RouterSelection& selection) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const auto scope = builder.scope("experts", Block::experts);
  RoutingOptions options;
  options.experts = config.experts;
  options.local_experts = config.experts;
  if (config.capacity_factor > 0) options.capacity_factor = config.capacity_factor;
  const TokenCounts counts = token_counts(builder, selection.indices, options);
  const TokenIndices indices = token_indices(builder, selection.indices, counts, options);

  const std::string dense_unit = writer.unit;
  writer.unit = dense_unit + ".experts";
  const Shape inward{config.experts, config.expert_size, config.hidden_size};
  const Shape outward{config.experts, config.hidden_size, config.expert_size};
  const std::vector<Value> weights{writer.matrix("gate", inward, {}, ParameterRole::expert),
                                   writer.matrix("up", inward, {}, ParameterRole::expert)};
  const Value down[] = {writer.output_matrix("down", outward, {}, ParameterRole::expert)};
  writer.unit = dense_unit;

  const Value rows = gather_tokens(builder, x, indices);  // [tokens · k, hidden]
  const std::vector<Value> projections = grouped_linear(builder, rows, weights, counts.offsets);
  const Value activated =
      gated_activation(builder, projections[0], projections[1], config.activation);
  const Value results = grouped_linear(builder, activated, down, counts.offsets)[0];
  return {reduce_experts(builder, results, selection.weights, indices), counts.counts};
}

}  // namespace

RoutedLayer mixture_of_experts(ModelWriter& writer, Value x) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const Routing routing = route(writer, x);
  const RoutedExperts routed = routed_experts(writer, x, routing.selection);
  Value output = routed.output;
  if (config.shared_experts > 0) {
    const Value shared =
        feed_forward(writer, "shared_experts", config.shared_experts * config.expert_size, x);
    const auto scope = builder.scope("shared_experts", Block::feed_forward);
    output = add(builder, std::vector{routed.output, shared}, writer.compute);
  }
  return {output, routing.logits, routing.probabilities, routed.counts};
}

}  // namespace tessera
