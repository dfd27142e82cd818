#pragma once

#include "program/builder.h"

namespace tessera {

/// Adds to a kept sum, f64: all elements of `value` to a sum [1], in their order, or element by
/// element to a sum of the value's own shape. The value is f32, f64 or i32. What a step gives
/// (losses, experts' tokens) is added up so and read once it is over. No gradient.
void add_to_sum(Builder& builder, Value sum, Value value);

}  // namespace tessera
