#pragma once

#include <cstdint>

#include "base/cache_sizes.h"
#include "device/device.h"

namespace tessera {

/// The kernels that run: the fast ones, or the plain loops that define each operation (always used
/// for f64).
enum class Kernels { fast, plain };

/// The instructions that a processor has for matrix products. Each value includes those before it.
enum class MatrixInstructions {
  none,         ///< no library of matrix products: plain loops
  avx2,         ///< AVX2, or a processor that has none of the following
  avx512,       ///< AVX-512 products of f32
  avx512_bf16,  ///< and of bf16
  amx,          ///< bf16 in tiles
};

/// The facts about a machine that planning needs. The workspaces and tiles of all operations depend
/// on nothing else of the machine. So a plan for another machine needs nothing of this one, and
/// ranks with equal targets have equal plans.
struct Target {
  Device device = Device::cpu;
  Kernels kernels = Kernels::fast;
  int threads = 1;
  MatrixInstructions instructions = MatrixInstructions::none;
  CacheSizes caches;
  int64_t memory_bytes = 0;  ///< the memory of the accelerator; 0 if not known
  int multiprocessors = 0;   ///< of the accelerator; 0 if not known
  /// True if f32 products on cuda may round operands to TF32, which has 10 bits after the point.
  bool tf32 = false;
  /// True if equal inputs must give equal bits on a device whose libraries can be faster otherwise
  /// (run.deterministic). On the processor they always do.
  bool deterministic = true;

  bool operator==(const Target&) const = default;
};

inline bool is_gpu(const Target& target) { return is_gpu(target.device); }

/// Returns the number of multiprocessors for which kernels of an accelerator split their work. If
/// it is not known, returns that of the emulated device, and for GPUs that of a typical large one.
inline int multiprocessors_of(const Target& target) {
  if (target.multiprocessors > 0) return target.multiprocessors;
  return target.device == Device::emulated ? 1 : 128;
}

}  // namespace tessera
