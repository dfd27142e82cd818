#pragma once

#include <optional>

#include "model/model_writer.h"
#include "ops/router/router.h"

namespace tessera {

/// The results of a layer's router. Its *classes* are the experts, and after them the skip class,
/// for tokens that visit no expert, if the model has one.
struct Routing {
  Value logits;               ///< [tokens, classes], in the accumulation dtype
  Value probabilities;        ///< [tokens, classes]
  RouterSelection selection;  ///< the chosen classes of each token, and their weights
  /// i32 [tokens, k]: choices that replace the router's own, if there are any. They serve to
  /// compare runs that round differently, or to measure a given load.
  std::optional<Value> pinned;
  /// [tokens, router_size], in the accumulation dtype, if routers are depth-averaged. The next
  /// layer's router scales it and adds it to its own projection of x.
  std::optional<Value> state;
};

/// Writes the router of a mixture-of-experts layer, in the accumulation dtype. x is [tokens,
/// hidden]. `previous_state` is Routing::state of the previous layer; the first layer has none.
/// `biases`, [classes], balance the choices: they are added to the probabilities for the choice
/// alone, and not for the weights. The router is a linear map, or the depth-averaged network of
/// ZAYA1 (section IV-A; see docs/models.md and router.cpp).
Routing route(ModelWriter& writer, Value x, std::optional<Value> previous_state,
              std::optional<Value> biases);

}  // namespace tessera
