#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// Returns x · weightᵀ. x is [tokens, in], and weight is [out, in] in x's type. The result is
/// [tokens, out] of type `dtype`, which is x's type or its accumulation type.
Value linear(Builder& builder, Value x, Value weight, DType dtype);
/// Returns x · weightᵀ in x's type.
Value linear(Builder& builder, Value x, Value weight);

/// Returns the products of one input with several weights (q, k, v; gate and up), one result for
/// each weight, all in x's type. The input gradients are summed in the accumulation type and
/// rounded once.
std::vector<Value> linears(Builder& builder, Value x, std::span<const Value> weights);

/// Returns Σ gradient_i · weight_i, the gradient of x. Gradients are [tokens, out_i], weights are
/// [out_i, in], and the result is [tokens, in] in the type of `x`. Only the spec of `x` is read.
/// The sum is taken in the accumulation type and rounded once.
Value linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                            std::span<const Value> weights, Value x);

/// Returns gradientᵀ · x, the gradient of the weight. gradient is [tokens, out], x is [tokens, in],
/// and the result is [out, in] in the accumulation type. If the weight is a parameter, the product
/// is added to its main gradient, which is returned. Otherwise the result is a new value.
Value linear_weight_gradient(Builder& builder, Value x, Value gradient, Value weight);

}  // namespace tessera
