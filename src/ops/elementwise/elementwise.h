#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// The sum of values of one shape, taken in the accumulation type and rounded once to `dtype`.
/// Addends may be of different floating types.
Value add(Builder& builder, std::span<const Value> addends, DType dtype);

/// factor · x.
Value scale(Builder& builder, Value x, double factor);

/// x limited to [-bound, bound]; the gradient is zero where the limit binds (OLMo's clip_qkv).
Value clamp(Builder& builder, Value x, double bound);

/// x in another floating type. The gradient keeps its own type, so that a sum over several uses is
/// rounded once.
Value cast(Builder& builder, Value x, DType dtype);

/// Adds `addend` into the memory of `accumulator` (a main gradient or another kept value).
void accumulate(Builder& builder, Value accumulator, Value addend);

}  // namespace tessera
