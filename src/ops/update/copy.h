#pragma once

#include <optional>
#include <span>

#include "program/builder.h"

namespace tessera {

/// Writes each of `sources` to the target with the same index. Both are kept values of the same
/// shape, type and distribution. With a `scale`, f64 [1], of clip_gradients(), nothing is written
/// if it is NaN: the step was not finite. It is for small values, of which a step changes a copy.
void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets,
               std::optional<Value> scale = {});

}  // namespace tessera
