#pragma once

#include "program/builder.h"

namespace tessera {

/// Adds `value` (f32, f64 or i32) to `sum`, a kept value in f64. All elements of the value are
/// added to a sum [1], in a fixed order. A sum of the value's shape is added to element by element.
///
/// The results of the micro-batches of a step, such as losses and tokens per expert, are added up
/// this way. They are read when the step is over. There is no gradient.
void add_to_sum(Builder& builder, Value sum, Value value);

}  // namespace tessera
