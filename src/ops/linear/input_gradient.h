#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// Returns Σ gradient_i · weight_i. Gradients are [tokens, out_i], weights are [out_i, in], and the
/// result is [tokens, in] in the type of `x`. Only the spec of `x` is read. The sum is taken in the
/// accumulation type and rounded once.
Value linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                            std::span<const Value> weights, Value x);

}  // namespace tessera
