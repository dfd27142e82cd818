#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// Computes x · weightᵀ. x is [tokens, in], and weight is [out, in] in x's type. The result is
/// [tokens, out] of type `dtype`, which is x's type or its accumulation type.
Value linear(Builder& builder, Value x, Value weight, DType dtype);
/// Does the same with the result in x's type.
Value linear(Builder& builder, Value x, Value weight);

/// Applies several weights to one input (q, k, v; gate and up). Returns one result for each weight,
/// all in x's type. The input gradients are summed in the accumulation type and rounded once.
std::vector<Value> linears(Builder& builder, Value x, std::span<const Value> weights);

}  // namespace tessera
