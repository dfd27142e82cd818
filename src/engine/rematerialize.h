#pragma once

#include "engine/recompute.h"
#include "program/builder.h"

namespace tessera {

/// Rewrites the backward pass so that it reads no values of the recomputed blocks, nor of
/// operations that are always cheap to repeat. The operations that make such a value are repeated
/// right before its first use. Outputs of the program stay in memory, and so do values marked by
/// Builder::keep (see Keep). The results keep their bits, because every kernel is deterministic.
void rematerialize(Builder& builder, const Recompute& recompute);

}  // namespace tessera
