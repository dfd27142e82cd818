#pragma once

#include "program/builder.h"

namespace tessera {

/// Adds a value to a kept sum in f64. A sum [1] takes all elements of `value`, in a fixed order. A
/// sum of the value's own shape takes them element by element. The value is f32, f64 or i32. The
/// results of a step (losses, tokens of experts) are added up this way and read when the step is
/// over. There is no gradient.
void add_to_sum(Builder& builder, Value sum, Value value);

}  // namespace tessera
