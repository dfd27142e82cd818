#pragma once

#include "engine/recompute.h"
#include "program/builder.h"

namespace tessera {

/// Rewrites the backward pass so that it does not use values of the recomputed blocks, nor of
/// operations that are always cheap to repeat: right before the first use of such a value, the
/// operations that make it are repeated. Values marked by Builder::keep stay. The results keep
/// their bits, because every kernel is deterministic.
void rematerialize(Builder& builder, const Recompute& recompute);

}  // namespace tessera
