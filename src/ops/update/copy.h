#pragma once

#include <span>

#include "program/builder.h"

namespace tessera {

/// Writes each of `sources` to the target of the same position. Both are kept values of one shape
/// and type that lie alike. It is for what a step works on a copy of, which are small values.
void copy_kept(Builder& builder, std::span<const Value> sources, std::span<const Value> targets);

}  // namespace tessera
