#pragma once

#include <algorithm>

#include "device/packs.h"
#include "ops/weight_parts.h"

// Adds up WeightParts (partial sums of weights' gradients) on a device. Only for files of kernels.

namespace tessera {
namespace {

/// A block takes kLanes columns. Each warp sums some parts, then the first adds the warps' sums.
// NOLINTNEXTLINE(misc-definitions-in-headers): each file of kernels has its own
__global__ void __launch_bounds__(kMostThreads) add_weight_parts_kernel(WeightParts sums) {
  __shared__ float totals[kMostThreads / kLanes][kLanes];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + this_lane();
  float total = 0;
  if (column < sums.width) {
    for (int64_t part = this_warp(); part < sums.count; part += block_warps()) {
      total += sums.parts[part * sums.width + column];
    }
  }
  totals[this_warp()][this_lane()] = total;
  __syncthreads();
  if (this_warp() != 0 || column >= sums.width) return;
  for (int warp = 1; warp < block_warps(); ++warp) total += totals[warp][this_lane()];
  *sums.total_address(column) = total;
}

/// Enqueues the kernel that writes the sums of the parts, always added in the same order.
inline void add_weight_parts_device(const WeightParts& sums, Stream& stream) {
  const int64_t warps = std::clamp<int64_t>(sums.count, 1, kMostThreads / kLanes);
  launch(
      add_weight_parts_kernel,
      {.blocks = (sums.width + kLanes - 1) / kLanes, .threads = static_cast<int>(warps * kLanes)},
      stream, sums);
}

}  // namespace
}  // namespace tessera
