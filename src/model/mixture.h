#pragma once

#include <optional>
#include <string>

#include "model/expert_layout.h"
#include "model/model_writer.h"

namespace tessera {

/// The output of a mixture-of-experts layer, and the values of its router.
struct RoutedLayer {
  Value output;         ///< [tokens, hidden]
  Value logits;         ///< [tokens, classes], of the router: the experts and the skip class
  Value probabilities;  ///< [tokens, classes]
  Value chosen;         ///< i32 [tokens, k], before dropping
  /// i32 [classes], invariant: how many tokens of all ranks chose each class, before dropping.
  Value counts;
  std::optional<Value> pinned;        ///< i32 [tokens, k]: the choices, if they are an input
  std::optional<Value> router_state;  ///< see Routing::state
  /// The unit of the biases that balance the choice, if there are any.
  std::string balance_unit;
};

/// Writes a mixture-of-experts layer: a router in f32 and FastSparseMoE (Optimus §3.1) over merged
/// expert weights [experts, out, in]. If there are shared experts, their output is added. Tokens
/// of the skip class get no expert. `previous` is the router's state of the layer before.
///
/// x is split along its tokens over all axes of the dense view, and so is the output; or it is
/// invariant, and all is one rank's. The experts are split over the mesh's expert axis, and their
/// weights are invariant over expert_data. Throws Error if they do not divide.
RoutedLayer mixture_of_experts(ModelWriter& writer, Value x, const ExpertLayout& layout = {},
                               std::optional<Value> previous = {});

}  // namespace tessera
