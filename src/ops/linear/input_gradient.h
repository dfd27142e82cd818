#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// Σ gradient_i · weight_i: gradients [tokens, out_i], weights [out_i, in], result [tokens, in] of
/// the type of `x`, which is only asked for its spec. The sum is taken in the accumulation type and
/// rounded once.
Value linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                            std::span<const Value> weights, Value x);

}  // namespace tessera
