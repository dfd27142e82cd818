#pragma once

// Functions by which kernels divide elements, packs and rows among threads and warps. Included by
// files of kernels.

#include <type_traits>

#include "device/kernel.h"

namespace tessera {
namespace {

/// Returns the index of this thread within its warp.
__device__ inline int this_lane() { return static_cast<int>(threadIdx.x) % kLanes; }
/// Returns the index of this warp within its block, which has one dim.
__device__ inline int this_warp() { return static_cast<int>(threadIdx.x) / kLanes; }
/// Returns the number of warps in a block.
__device__ inline int block_warps() { return static_cast<int>(blockDim.x) / kLanes; }
/// Returns the index of this warp, counted over the grid's first dim.
__device__ inline int64_t warp_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * block_warps() + this_warp();
}

/// Calls body(size) with the number of elements of a pack as a compile-time constant: `widest`, or
/// 1 if `width` is not a multiple of it.
template <int widest, typename Body>
void with_pack_size(int64_t width, Body&& body) {
  if (width % widest == 0) {
    body(std::integral_constant<int, widest>{});
  } else {
    body(std::integral_constant<int, 1>{});
  }
}

inline constexpr int kElementThreads = 256;  // in a block of grid_of_elements()

/// Returns a grid with one thread for every `each` elements.
template <int each>
Grid grid_of_elements(int64_t count) {
  constexpr int64_t kOfBlock = int64_t{each} * kElementThreads;
  return {.blocks = (count + kOfBlock - 1) / kOfBlock, .threads = kElementThreads};
}

/// Calls body(first, number) for this thread's elements, with a compile-time number of them: once
/// for all `each`, or one by one where fewer are left.
template <int each, typename Body>
__device__ void for_my_elements(int64_t count, Body&& body) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = thread * each;
  if (first + each <= count) {
    body(first, std::integral_constant<int, each>{});
  } else {
    for (int64_t i = first; i < count; ++i) body(i, std::integral_constant<int, 1>{});
  }
}

}  // namespace
}  // namespace tessera
