#pragma once

#include <span>
#include <vector>

#include "program/builder.h"

namespace tessera {

/// x · weightᵀ: x [tokens, in], weight [out, in], result [tokens, out] of type `dtype` (x's own, or
/// its accumulation type; x and the weight have one type).
Value linear(Builder& builder, Value x, Value weight, DType dtype);
/// The same with the result in x's type.
Value linear(Builder& builder, Value x, Value weight);

/// Several weights on one input (q, k, v; gate and up): one result for each, all of x's type. Their
/// input gradients are summed in the accumulation type and rounded once.
std::vector<Value> linears(Builder& builder, Value x, std::span<const Value> weights);

}  // namespace tessera
