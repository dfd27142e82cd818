#pragma once

#include "ops/moe/routing.h"

namespace tessera {

/// Gathers the experts' input (stage 4 of FastSparseMoE). Row r of the result [rows, hidden] is
/// token input_indices[r] of x [tokens, hidden]. Unused rows are not written. In the backward pass
/// each token sums the gradients of its rows in the accumulation type and rounds once, to x's type.
Value gather_tokens(Builder& builder, Value x, const TokenIndices& indices);

}  // namespace tessera
