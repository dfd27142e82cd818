#pragma once

#include "model/model_writer.h"

namespace tessera {

/// The output of a mixture-of-experts layer, and the values of its router.
struct RoutedLayer {
  Value output;         ///< [tokens, hidden]
  Value logits;         ///< [tokens, experts], of the router
  Value probabilities;  ///< [tokens, experts]
  Value counts;         ///< i32 [experts]: how many tokens chose each expert, before dropping
};

/// Writes a mixture-of-experts layer: a linear router in f32 and FastSparseMoE (Optimus §3.1) over
/// merged expert weights [experts, out, in]. If there are shared experts, their output is added.
RoutedLayer mixture_of_experts(ModelWriter& writer, Value x);

}  // namespace tessera
