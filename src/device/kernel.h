#pragma once

// The dialect in which kernels are written: CUDA's words, and functions over the lanes (threads) of
// a warp and the threads of a block. A file of kernels, x.cu, includes this header and is compiled
// once for each vendor: by nvcc, by a HIP compiler, and as plain C++ for the emulated device, with
// warps of 32 and of 64 threads. A program may hold all these versions, so everything here has
// internal linkage.
//
// The rules for kernels: a kernel works for any number of lanes and adds floats in a fixed order,
// without atomics. It reads and writes memory 16 bytes at a time where it can (device/packs.h).

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/bfloat16.h"
#include "device/vendor.h"

#if defined(__CUDACC__)
#include <tuple>

#include <cuda_bf16.h>
#define TESSERA_DEVICE_COMPILER 1
#elif defined(__HIPCC__)
#include <tuple>

#include <hip/hip_runtime.h>
#define TESSERA_DEVICE_COMPILER 1
#else
#include <atomic>

#include "device/emulation.h"
#define __global__
#define __device__
#define __shared__ static thread_local  // all threads of a block run on one thread, as fibers
#define __launch_bounds__(...)
#define threadIdx (::tessera::emulation::thread_index())
#define blockIdx (::tessera::emulation::block_index())
#define blockDim (::tessera::emulation::block_size())
#define gridDim (::tessera::emulation::grid_size())
#endif

namespace tessera {
namespace {

#if defined(__CUDACC__)
using ThisVendor = Cuda;
inline constexpr int kLanes = 32;
#elif defined(__HIPCC__)
using ThisVendor = Hip;
inline constexpr int kLanes = 64;
#else
inline constexpr int kLanes = TESSERA_EMULATED_LANES;
using ThisVendor = Emulated<kLanes>;
#endif
inline constexpr int kMostThreads = 1024;  // the limit of a block

// The emulated device's versions of functions that device compilers have built in.
// NOLINTBEGIN(readability-identifier-naming)
#if !defined(TESSERA_DEVICE_COMPILER)
inline void __syncthreads() { emulation::wait_for_block(); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline int atomicAdd(int* sum, int value) {
  return std::atomic_ref<int>(*sum).fetch_add(value, std::memory_order_relaxed);
}
inline int atomicMax(int* maximum, int value) {
  std::atomic_ref<int> largest(*maximum);
  int before = largest.load(std::memory_order_relaxed);
  while (before < value && !largest.compare_exchange_weak(before, value)) {
  }
  return before;
}
#endif
// NOLINTEND(readability-identifier-naming)

/// Returns the index of this thread within its warp.
__device__ inline int this_lane() { return static_cast<int>(threadIdx.x) % kLanes; }
/// Returns the index of this warp within its block, which has one dim.
__device__ inline int this_warp() { return static_cast<int>(threadIdx.x) / kLanes; }
/// Returns the number of warps in a block, which has one dim.
__device__ inline int block_warps() { return static_cast<int>(blockDim.x) / kLanes; }
/// Returns the index of this warp, counted over the grid's first dim.
__device__ inline int64_t warp_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * block_warps() + this_warp();
}

/// Returns the value that lane `from` of the warp gives. All lanes must call it.
template <typename T>
__device__ inline T shuffle(T value, int from) {
#if defined(__CUDACC__)
  return __shfl_sync(~0u, value, from);
#elif defined(__HIPCC__)
  return __shfl(value, from);
#else
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(emulation::exchange(std::bit_cast<Bits>(value), from)));
#endif
}

/// Returns the value that lane `lane ^ mask` of the warp gives. All lanes must call it.
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
#if defined(__CUDACC__)
  return __shfl_xor_sync(~0u, value, mask);
#elif defined(__HIPCC__)
  return __shfl_xor(value, mask);
#else
  return shuffle(value, emulation::lane() ^ mask);
#endif
}

/// Returns a bit for each lane of the warp, set if its `value` is true. All lanes must call it.
__device__ inline uint64_t ballot(bool value) {
#if defined(__CUDACC__)
  return __ballot_sync(~0u, value);
#elif defined(__HIPCC__)
  return __ballot(value);
#else
  return emulation::ballot(value);
#endif
}

/// Waits for all lanes of the warp and orders their accesses to memory.
__device__ inline void wait_for_warp() {
#if defined(__CUDACC__)
  __syncwarp();
#elif defined(__HIPCC__)
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
  emulation::wait_for_warp();
#endif
}

/// Returns the block's dynamic shared memory (Grid::shared_bytes), aligned to 16 bytes.
template <typename T>
__device__ inline T* dynamic_shared() {
#if defined(TESSERA_DEVICE_COMPILER)
  extern __shared__ __align__(16) unsigned char tessera_dynamic_shared[];
  return reinterpret_cast<T*>(tessera_dynamic_shared);
#else
  return static_cast<T*>(emulation::dynamic_shared());
#endif
}

/// Rounds a float to an element of type T: to nearest, ties to even.
template <typename T>
__device__ inline T round_to(float value) {
#if defined(__CUDA_ARCH__)  // one instruction
  if constexpr (sizeof(T) == 2) return std::bit_cast<T>(__float2bfloat16_rn(value));
#endif
  return static_cast<T>(value);
}

/// Returns the sum over the lanes of a warp, to each lane. The order of the additions is fixed.
template <typename T>
__device__ inline T warp_sum(T value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
/// Returns the maximum over the lanes of a warp, to each lane. If a lane gives NaN, which compares
/// as false, lanes may get different results.
template <typename T>
__device__ inline T warp_max(T value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    const T partner = shuffle_xor(value, mask);
    value = value < partner ? partner : value;
  }
  return value;
}

/// Combines the values of all threads of a one-dimensional block and returns the result to each of
/// them. `combine`, a sum or a maximum over a warp, is called twice: within each warp, then for the
/// results of the warps. There `neutral` is the value of lanes that have no warp's result.
template <typename T, typename Combine>
__device__ inline T combine_block(T value, T neutral, Combine combine) {
  __shared__ T warp_results[kMostThreads / kLanes];
  value = combine(value);
  __syncthreads();  // until all threads have read the results of an earlier call
  if (this_lane() == 0) warp_results[this_warp()] = value;
  __syncthreads();
  return combine(this_lane() < block_warps() ? warp_results[this_lane()] : neutral);
}

/// Returns the sum, in a fixed order, over the threads of a one-dimensional block, to each thread.
template <typename T>
__device__ inline T block_sum(T value) {
  return combine_block(value, T{0}, [](T part) { return warp_sum(part); });
}
/// Returns the maximum of floats over the threads of a one-dimensional block, to each thread.
template <typename T>
__device__ inline T block_max(T value) {
  return combine_block(value, static_cast<T>(-INFINITY), [](T part) { return warp_max(part); });
}

/// Launches a kernel in a stream. Does nothing if the grid has no blocks.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Stream& stream,
            Arguments... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0) return;
#if defined(TESSERA_DEVICE_COMPILER)
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* addresses[] = {static_cast<void*>(&value)...};
        launch_kernel(ThisVendor{}, reinterpret_cast<const void*>(kernel), grid, stream, addresses);
      },
      values);
#else
  stream.emulate(grid, [=] { kernel(Parameters(arguments)...); });
#endif
}

}  // namespace
}  // namespace tessera
