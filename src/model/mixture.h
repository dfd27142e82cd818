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
  /// i32 [classes], invariant: the number of tokens of all ranks that chose each class, before
  /// dropping.
  Value counts;
  std::optional<Value> pinned;        ///< i32 [tokens, k]: the choices, if they are an input
  std::optional<Value> router_state;  ///< see Routing::state
  /// The unit of the biases that balance the choice, if there are any.
  std::string balance_unit;
};

/// Writes a mixture-of-experts layer: a router in the accumulation dtype, and FastSparseMoE
/// (Optimus §3.1) over merged expert weights [experts, out, in]. The outputs of shared experts are
/// added, if there are any. `previous_state` is the router state of the previous layer.
///
/// x and the output are split along their tokens over all axes of the dense view, or they are
/// invariant, and one rank does all the work. The experts are split over the mesh's expert axis,
/// and their weights are invariant over expert_data. Throws Error if the experts do not divide.
RoutedLayer mixture_of_experts(ModelWriter& writer, Value x, const ExpertLayout& layout = {},
                               std::optional<Value> previous_state = {});

}  // namespace tessera
