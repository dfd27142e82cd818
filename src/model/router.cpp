// A mixture layer's router, in f32 (f64 for f64):
//
//   logits = W x                                      linear
//   state = D x + b + s ⊙ previous_state              depth_averaged
//   logits = O gelu(W2 gelu(W1 norm(state) + b1) + b2)
//   p = softmax(logits);  choices = top_k(p + biases);  weights = p[choices]
//
// All matrices are whole on every rank, and each rank routes its own tokens.

#include "model/router.h"

#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/router/router_network.h"

namespace tessera {
namespace {

/// Writes one router for x, [tokens, hidden].
class RouterWriter {
 public:
  RouterWriter(ModelWriter& writer, Value x)
      : writer_(writer), builder_(writer.builder), config_(writer.config), x_(x) {}

  Routing write(std::optional<Value> previous_state, std::optional<Value> biases) {
    Routing routing;
    if (config_.router == RouterKind::depth_averaged) {
      routing.state = state(previous_state);
      routing.logits = network(*routing.state);
    } else {
      routing.logits = linear(builder_, wide_input(),
                              matrix("weight", {classes(), config_.hidden_size}, kLogits));
    }
    routing.probabilities = router_softmax(builder_, routing.logits);
    // The router losses come after all layers, so their gradients come first in the backward pass.
    // If these small values were not kept, all recomputed layers would run again at that point.
    builder_.keep(routing.logits, Keep::layer);
    builder_.keep(routing.probabilities, Keep::layer);
    if (writer_.pins_choices) {
      Spec choices = builder_.spec(routing.probabilities);
      choices.shape = choices.shape.with_dim(1, config_.experts_per_token);
      choices.dtype = DType::i32;
      routing.pinned = builder_.input(builder_.qualified("choices"), choices);
    } else {
      routing.pinned = writer_.given_choices;
    }
    if (biases) biases = use_like(builder_, *biases, routing.probabilities);
    routing.selection = router_top_k(builder_, routing.probabilities,
                                     {.k = config_.experts_per_token,
                                      .renormalise = config_.renormalise_weights,
                                      .forced_uniform = config_.forced_uniform_routing},
                                     routing.pinned, biases);
    if (biases) {
      // Not recomputed: the biases have changed by then, and other experts might be chosen.
      builder_.keep(routing.selection.indices, Keep::layer);
      builder_.keep(routing.selection.weights, Keep::layer);
    }
    return routing;
  }

 private:
  static constexpr ParameterRole kLogits = ParameterRole::router;
  static constexpr ParameterRole kHidden = ParameterRole::router_hidden;

  int64_t classes() const { return config_.router_classes(); }
  /// Returns x in the accumulation dtype.
  Value wide_input() { return cast(builder_, x_, writer_.wide()); }
  Value matrix(std::string_view name, const Shape& shape, ParameterRole role) {
    return use_like(builder_, writer_.matrix(name, shape, {}, role), x_);
  }
  Value vector(std::string_view name, double constant) {
    return use_like(builder_, writer_.vector(name, config_.router_size, constant), x_);
  }

  /// Returns the router's state: its projection of x plus the scaled previous state.
  Value state(std::optional<Value> previous_state) {
    const Value down = matrix("down.weight", {config_.router_size, config_.hidden_size}, kHidden);
    const Value bias = vector("down.bias", 0);
    std::optional<Value> scale;
    if (previous_state) scale = vector("state_scale", 1);
    return depth_average(builder_, linear(builder_, wide_input(), down), bias, scale,
                         previous_state);
  }

  /// Returns the logits, [tokens, classes], of the network of three layers.
  Value network(Value state) {
    const int64_t size = config_.router_size;
    Value x = tessera::norm(builder_, state, writer_.norm_weight("norm.weight", size, state),
                            writer_.norm_options(0))
                  .output;
    for (const std::string_view layer : {"first", "second"}) {
      const Value weight = matrix(fmt::format("{}.weight", layer), {size, size}, kHidden);
      const Value bias = vector(fmt::format("{}.bias", layer), 0);
      x = biased_gelu(builder_, linear(builder_, x, weight), bias);
    }
    return linear(builder_, x, matrix("output", {classes(), size}, kLogits));
  }

  ModelWriter& writer_;
  Builder& builder_;
  const ModelConfig& config_;
  Value x_;
};

}  // namespace

Routing route(ModelWriter& writer, Value x, std::optional<Value> previous_state,
              std::optional<Value> biases) {
  const auto scope = writer.builder.scope("router", Block::router);
  return RouterWriter(writer, x).write(previous_state, biases);
}

}  // namespace tessera
