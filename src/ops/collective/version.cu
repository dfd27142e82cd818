#include <algorithm>

#include "device/packs.h"
#include "ops/collective/version_kernels.h"

namespace tessera {
namespace {

__global__ void advance_version(int32_t* version) {
  if (threadIdx.x == 0) ++*version;
}

template <typename T>
__global__ void spoil_stale(const int32_t* version, const int32_t* expected, T* weights,
                            int64_t count) {
  if (*version == *expected) return;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < count; i += threads) weights[i] = round_to<T>(NAN);
}

}  // namespace

template <typename Vendor>
void advance_version_device(int32_t* version, Stream& stream) {
  launch(advance_version, {.threads = kLanes}, stream, version);
}

template <typename Vendor, typename T>
void spoil_stale_device(const int32_t* version, const int32_t* expected, T* weights, int64_t count,
                        Stream& stream) {
  // Few blocks: nearly always they find equal versions.
  constexpr int64_t kMostBlocks = 64;
  Grid grid = grid_of_elements<1>(count);
  grid.blocks = std::min(grid.blocks, kMostBlocks);
  launch(spoil_stale<T>, grid, stream, version, expected, weights, count);
}

template void advance_version_device<ThisVendor>(int32_t*, Stream&);
template void spoil_stale_device<ThisVendor>(const int32_t*, const int32_t*, float*, int64_t,
                                             Stream&);
template void spoil_stale_device<ThisVendor>(const int32_t*, const int32_t*, BFloat16*, int64_t,
                                             Stream&);

}  // namespace tessera
