#pragma once

#include "model/model_writer.h"

namespace tessera {

/// What a mixture-of-experts layer gives beside its output.
struct RoutedLayer {
  Value output;         ///< [tokens, hidden]
  Value logits;         ///< [tokens, experts], of the router
  Value probabilities;  ///< [tokens, experts]
  Value counts;         ///< i32 [experts]: how many tokens chose each expert, before dropping
};

/// A mixture-of-experts layer: a linear router in f32, and FastSparseMoE (Optimus §3.1) over merged
/// expert weights [experts, out, in]; to their output the shared experts' is added, where there are
/// some.
RoutedLayer mixture_of_experts(ModelWriter& writer, Value x);

}  // namespace tessera
