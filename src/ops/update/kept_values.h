#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

// Writes of kept values, which stay in memory from step to step: copies, rounded copies and zeros.
// The values of a pair have the same shape and distribution. There is no gradient.

/// Writes each of `sources` to its target, which has the same type. `scale`, f64 [1], comes from
/// clip_gradients(). If it is NaN, the step was not finite and nothing is written. This serves a
/// few small values that a step first changes in a copy. A device starts a kernel for each of them.
void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets,
               std::optional<Value> scale = {});

/// Writes each of `masters` (f32) to its weight, rounded to bf16.
void round_to_weights(Builder& builder, std::span<const Value> masters,
                      std::span<const Value> weights);

/// Sets kept values (main gradients, sums) to zero.
void zero(Builder& builder, std::span<const Value> values);

}  // namespace tessera
