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

}  // namespace tessera
