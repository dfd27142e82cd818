#pragma once

#include <optional>

#include "model/model_writer.h"
#include "ops/router/router.h"

namespace tessera {

/// The results of a layer's router.
struct Routing {
  Value logits;         ///< [tokens, classes], in the accumulation dtype
  Value probabilities;  ///< [tokens, classes]
  /// The chosen classes. Indices from the number of experts on are the skip class.
  RouterSelection selection;
  std::optional<Value> pinned;  ///< i32 [tokens, k]: the choices, if they are an input
  /// [tokens, router_size] in the accumulation dtype: the input of the next layer's router, if
  /// routers are depth-averaged.
  std::optional<Value> state;
};

/// Writes the router of a mixture-of-experts layer, in the accumulation dtype. x is [tokens,
/// hidden]. The router is a linear map, or the network of ZAYA1 (section IV-A; algorithms in the
/// family's page of docs/models.md): a projection to a narrow state, to which the state of the
/// previous layer is added (exponential depth averaging), a norm and a network of three layers. If
/// biases balance the choices, `biases`, [classes], are added to the probabilities for the choice
/// alone. `previous` is the state of the previous layer; the first layer has none.
Routing route(ModelWriter& writer, Value x, std::optional<Value> previous,
              std::optional<Value> biases);

}  // namespace tessera
