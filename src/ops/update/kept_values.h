#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

// Operations without a gradient that write kept values, which stay in memory from step to step:
// copies, rounded copies, zeros or sums. A source and its target have one shape and distribution.

/// Writes each of `sources` to its target, which has the same type. `scale`, f64 [1], comes from
/// clip_gradients(). If it is NaN, the step was not finite and nothing is written. A device copies
/// the values one by one, so there should be few of them. With a scale it takes f32 alone.
void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets,
               std::optional<Value> scale = {});

/// Writes each of `masters` (f32) to its weight, rounded to bf16.
void round_to_weights(Builder& builder, std::span<const Value> masters,
                      std::span<const Value> weights);

/// Sets kept values (main gradients, sums) to zero.
void zero(Builder& builder, std::span<const Value> values);

/// Adds `value` (f32, f64 or i32) to `sum`, a kept value in f64. All elements of the value are
/// added to a sum [1], in a fixed order. A sum of the value's shape is added to element by element.
///
/// The results of the micro-batches of a step, such as losses and tokens per expert, are added up
/// this way. They are read when the step is over. There is no gradient.
void add_to_sum(Builder& builder, Value sum, Value value);

}  // namespace tessera
