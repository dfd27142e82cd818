#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/words.h"

namespace tessera {

class Builder;

/// The blocks whose results can be computed again in the backward pass instead of being kept
/// (selective activation checkpointing, Optimus §1). `experts` stands for the SparseMoE block with
/// its router, and for all other feed-forward blocks.
enum class RecomputedBlock { norm, attention, experts, layer };
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<RecomputedBlock>{"norm", "attention",
                                                                           "experts", "layer"};

/// The set of blocks that are recomputed.
struct Recompute {
  bool norm = false;
  bool attention = false;
  bool experts = false;
  bool layer = false;

  bool operator==(const Recompute&) const = default;
};

/// Returns the Recompute with the listed blocks set.
Recompute recompute_of(std::span<const RecomputedBlock> blocks);

/// Rewrites the backward pass so that it does not read the forward pass's values of recomputed
/// blocks, nor results of operations that are always cheap to repeat. The nodes that make such a
/// value are repeated right before its first use in the backward pass. Outputs of the program and
/// values marked by Builder::keep() stay in memory (see Keep). Recomputation changes no bits of the
/// results if the kernels are deterministic (Target::deterministic).
void rematerialize(Builder& builder, const Recompute& recompute);

}  // namespace tessera
