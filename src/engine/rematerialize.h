#pragma once

#include <span>
#include <string>

#include "program/builder.h"

namespace tessera {

/// Which named blocks are computed again in the backward pass instead of kept (selective activation
/// checkpointing, Optimus §1): norms, attention, the SparseMoE block with its router (for a dense
/// model its feed-forward block), or whole layers.
struct Recompute {
  bool norm = false;
  bool attention = false;
  bool experts = false;
  bool layer = false;

  bool operator==(const Recompute&) const = default;
};

/// Reads names such as {"norm", "experts"}; throws Error naming the known ones for any other.
Recompute recompute_from_names(std::span<const std::string> names);

/// Rewrites the backward pass so that it does not use values of the recomputed blocks, nor of
/// operations that are always cheap to repeat: right before the first use of such a value, the
/// operations that make it are repeated. Values marked by Builder::keep stay. The results keep
/// their bits, because every kernel is deterministic.
void rematerialize(Builder& builder, const Recompute& recompute);

}  // namespace tessera
