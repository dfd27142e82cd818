#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// Returns the sum of values of the same shape, taken in the accumulation type and rounded once to
/// `dtype`. Addends may have different floating types. A device adds at most Addends::kMost values.
Value add(Builder& builder, std::span<const Value> addends, DType dtype);

/// Returns factor · x.
Value scale(Builder& builder, Value x, double factor);

/// Limits x to [-bound, bound] (OLMo's clip_qkv). The gradient is 0 where x is outside or NaN.
Value clamp(Builder& builder, Value x, double bound);

/// Returns x converted to another floating type. The gradient keeps its own type, so a sum over
/// several uses is rounded once.
Value cast(Builder& builder, Value x, DType dtype);

/// Returns zeros of this shape, type and distribution. They stand for a part that this rank has
/// not, so that all ranks take the same sum. There is no gradient.
Value zeros(Builder& builder, const Spec& spec);

/// Adds `addend` to the memory of `accumulator` (a main gradient or another kept value).
void accumulate(Builder& builder, Value accumulator, Value addend);

}  // namespace tessera
