#pragma once

#include <algorithm>
#include <type_traits>

#include "base/round_up.h"
#include "device/packs.h"
#include "ops/norm/norm_kernels.h"
#include "ops/rotary/rotated_pack.h"

// The parts that the kernels of norms and of their gradients share: teams of threads that handle
// rows, and the rotation of a row. A pack is `pack_size` elements that are moved in one access, and
// p is the index of a pack in its row.

namespace tessera {
namespace {

// A row is handled by a team: a warp, or the whole block. Most rows fit into the registers of their
// team and are loaded once. A longer row is divided into cuts that fit, loaded anew in each pass.

inline constexpr int kMostRowThreads = 512;  // of a team, so that a thread may have 128 registers

/// A team whose threads hold up to `held_packs` packs of a row at a time.
template <bool whole_block, int held_packs>
struct Team {
  static constexpr bool kWholeBlock = whole_block;
  static constexpr int kHeld = held_packs;

  __device__ static int size() { return whole_block ? static_cast<int>(blockDim.x) : kLanes; }
  __device__ static int member() {
    return whole_block ? static_cast<int>(threadIdx.x) : this_lane();
  }
  /// Returns the index of this team within the block. count() returns the block's teams.
  __device__ static int index() { return whole_block ? 0 : this_warp(); }
  __device__ static int count() { return whole_block ? 1 : block_warps(); }
  /// Waits until all threads of the team have arrived and have finished their earlier reads.
  __device__ static void synchronize() {
    if constexpr (whole_block) {
      __syncthreads();
    } else {
      wait_for_warp();
    }
  }
  __device__ static float sum(float value) {
    if constexpr (whole_block) return block_sum(value);
    return warp_sum(value);
  }
};

/// The packs of one cut of a row that a thread holds.
template <typename Team, typename T, int pack_size>
struct HeldPacks {
  Pack<T, pack_size> packs[Team::kHeld];

  __device__ void load(const T* row, int cut, int count);
};

/// Calls body(held, p) for the packs of a cut that this thread holds. `held` is the index of pack p
/// among the thread's packs. The row has `packs` packs.
template <typename Team, typename Body>
__device__ void for_held(int cut, int packs, Body&& body) {
  for (int held = 0; held < Team::kHeld; ++held) {
    const int p = (cut * Team::kHeld + held) * Team::size() + Team::member();
    if (p < packs) body(held, p);
  }
}

template <typename Team, typename T, int pack_size>
__device__ void HeldPacks<Team, T, pack_size>::load(const T* row, int cut, int count) {
  for_held<Team>(cut, count, [&](int held, int p) { packs[held] = load_pack<pack_size>(row, p); });
}

/// Calls body(cut) for each cut of a row. A row that fits has one.
template <typename Team, bool fits, typename Body>
__device__ void for_each_cut(int packs, Body&& body) {
  if constexpr (fits) {
    body(0);
  } else {
    const int cut_packs = Team::kHeld * Team::size();
    for (int cut = 0; cut * cut_packs < packs; ++cut) body(cut);
  }
}

/// Returns the weights of pack p, or ones without a weight.
template <int pack_size>
__device__ Pack<float, pack_size> weights_of_pack(const float* weight, int p) {
  if (weight != nullptr) return load_pack<pack_size>(weight, p);
  Pack<float, pack_size> ones;
  for (float& value : ones.values) value = 1.0f;
  return ones;
}

/// The rotation of one row. A pack is rotated together with its partner, which is in the same head,
/// half of the rotated channels away. A pack of channels that are not rotated is its own partner.
class RowRotation {
 public:
  template <typename T>
  __device__ RowRotation(const NormRotation<T>& rotation, int64_t row_start)
      : cosines_(rotation.table == nullptr
                     ? nullptr
                     : rotation.table +
                           row_start / (rotation.heads * rotation.head_dim) * rotation.channels),
        head_dim_(static_cast<int>(rotation.head_dim)),
        half_(static_cast<int>(rotation.channels / 2)) {}

  /// Returns the index of the partner of pack p.
  template <int pack_size>
  __device__ int partner(int p) const {
    const int channel = p * pack_size % head_dim_;
    if (channel >= 2 * half_) return p;
    return channel < half_ ? p + half_ / pack_size : p - half_ / pack_size;
  }

  /// Returns pack p of the row after the rotation. `pack` and `partner_pack` are pack p and its
  /// partner before the rotation. `sign` is 1, or -1 for the inverse rotation.
  template <typename T, int pack_size>
  __device__ Pack<T, pack_size> rotated(int p, const Pack<T, pack_size>& pack,
                                        const Pack<T, pack_size>& partner_pack, float sign) const {
    const int channel = p * pack_size % head_dim_;
    if (channel >= 2 * half_) return pack;
    const bool is_first = channel < half_;
    const int pair = is_first ? channel : channel - half_;
    const auto cosine = load_pack<pack_size>(cosines_ + pair, 0);
    auto sine = load_pack<pack_size>(cosines_ + half_ + pair, 0);
    for (float& value : sine.values) value *= sign;
    return rotated_pack(is_first, pack, partner_pack, cosine, sine);
  }

 private:
  const float* cosines_;
  int head_dim_;
  int half_;
};

inline constexpr int kTeamWarps = 4;  // of a block whose teams are warps

/// Calls body(pack_size, team, fits, grid of one team per row), the first three as
/// compile-time constants. `fits` is true if a row fits into the registers of its team.
template <typename T, typename Body>
void for_row_width(int64_t rows, int64_t width, Body&& body) {
  using NarrowWarp = Team<false, 1>;
  using Warp = Team<false, 2>;
  using Block = Team<true, 4>;  // with more packs the gradient kernel runs out of registers
  with_pack_size<kPackSize<T>>(width, [&](auto pack_size) {
    const int64_t packs = width / pack_size;
    const Grid warp_grid{.blocks = (rows + kTeamWarps - 1) / kTeamWarps,
                         .threads = kTeamWarps * kLanes};
    const int64_t threads = round_up((packs + Block::kHeld - 1) / Block::kHeld, int64_t{kLanes});
    const Grid block_grid{.blocks = rows,
                          .threads = static_cast<int>(std::min<int64_t>(threads, kMostRowThreads))};
    // Rows that packs do not divide (pack_size is 1) take the kernel for long rows.
    if constexpr (pack_size > 1) {
      if (packs <= kLanes) return body(pack_size, NarrowWarp{}, std::true_type{}, warp_grid);
      if (packs <= 2 * kLanes) return body(pack_size, Warp{}, std::true_type{}, warp_grid);
      if (threads <= kMostRowThreads) return body(pack_size, Block{}, std::true_type{}, block_grid);
    }
    body(pack_size, Block{}, std::false_type{}, block_grid);
  });
}

/// Returns whether each pack of a head is rotated as a whole, together with another pack.
template <typename T>
bool rotates_packs(const NormRotation<T>& rotation, int pack_size) {
  return rotation.channels % (2 * pack_size) == 0 && rotation.head_dim % pack_size == 0;
}

}  // namespace
}  // namespace tessera
