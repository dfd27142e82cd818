#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

/// Writes each of `sources` to the target of the same position. Both are kept values of one shape
/// and type that lie alike. With a `scale`, f64 [1], of clip_gradients(), nothing is written if it
/// is NaN: the step was not finite. It is for what a step works on a copy of, which are small
/// values.
void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets,
               std::optional<Value> scale = {});

}  // namespace tessera
