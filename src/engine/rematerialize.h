#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/words.h"

namespace tessera {

class Builder;

/// The kinds of block that can be computed again in the backward pass instead of kept (selective
/// activation checkpointing, Optimus §1): norms, attention, the SparseMoE block with its router and
/// all other feed-forward blocks, or whole layers.
enum class Recomputed { norm, attention, experts, layer };
template <>
inline constexpr std::array<std::string_view, 4> kWords<Recomputed>{"norm", "attention", "experts",
                                                                    "layer"};

/// The kinds of block that are recomputed.
struct Recompute {
  bool norm = false;
  bool attention = false;
  bool experts = false;
  bool layer = false;

  bool operator==(const Recompute&) const = default;
};

/// Returns the Recompute with the listed blocks set.
Recompute recompute_of(std::span<const Recomputed> blocks);

/// Rewrites the backward pass so that it reads no values of the recomputed blocks, nor of
/// operations that are always cheap to repeat. The operations that make such a value are repeated
/// right before its first use. Outputs of the program stay in memory, and so do values marked by
/// Builder::keep (see Keep). The results keep their bits, because every kernel is deterministic.
void rematerialize(Builder& builder, const Recompute& recompute);

}  // namespace tessera
