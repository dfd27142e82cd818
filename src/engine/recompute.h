#pragma once

#include <array>
#include <span>
#include <string_view>

#include "base/words.h"

namespace tessera {

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

}  // namespace tessera
