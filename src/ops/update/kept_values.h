#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

// Operations that write kept values, which stay in memory from step to step: copies, rounded copies
// or zeros. A source and its target have the same shape and distribution. There is no gradient.

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

}  // namespace tessera
