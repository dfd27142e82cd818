#include "model/mixture.h"

#include "model/expert_ways.h"
#include "model/feed_forward.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
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
  std::optional<Value> pinned = writer.given_choices;
  if (writer.pins_choices) {
    Spec choices = builder.spec(probabilities);
    choices.shape = choices.shape.with_dim(1, config.experts_per_token);
    choices.dtype = DType::i32;
    pinned = builder.input(builder.qualified("choices"), choices);
  }
  return {logits, probabilities, pinned, router_top_k(builder, probabilities, options, pinned)};
}

/// The experts of a layer, between the dense view and theirs.
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

RoutedLayer mixture_of_experts(ModelWriter& writer, Value x, const ExpertLayout& layout) {
  const ModelConfig& config = writer.config;
  Builder& builder = writer.builder;
  const Routing routing = route(writer, x);
  const ExpertResults routed = cross_to_experts(writer, layout, x, routing.selection);
  Value output = routed.output;
  if (config.shared_experts > 0) {
    const Value shared =
        feed_forward(writer, "shared_experts", config.shared_experts * config.expert_size, x);
    const auto scope = builder.scope("shared_experts", Block::feed_forward);
    output = add(builder, std::vector{routed.output, shared}, writer.compute);
  }
  return {output,        routing.logits, routing.probabilities, routing.selection.indices,
          routed.counts, routing.pinned};
}

}  // namespace tessera
