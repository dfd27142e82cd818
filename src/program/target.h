#pragma once

#include <cstdint>

#include "base/cache_sizes.h"
#include "comm/fingerprint.h"
#include "device/device.h"

namespace tessera {

/// The kernels that run: the fast ones, or the plain loops that define each operation (always used
/// for f64).
enum class Kernels { fast, plain };

/// The instructions by which a processor computes matrix products. Each value includes those before
/// it, except `none`.
enum class MatrixInstructions {
  none,         ///< this build has no library of matrix products: plain loops
  avx2,         ///< the library's products without AVX-512
  avx512,       ///< AVX-512, for f32
  avx512_bf16,  ///< AVX-512, for f32 and bf16
  amx,          ///< AMX, for bf16
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
  /// True if a device must give equal bits for equal inputs, even where its libraries have faster
  /// kernels that do not (run.deterministic). The processor always gives equal bits.
  bool deterministic = true;

  bool operator==(const Target&) const = default;
};

/// Returns how ranks sum on a target. If a device need not give equal bits, its library chooses the
/// order. Sums with copies, which several groups of ranks take at the same time, are exceptions:
/// their order is that of the ranks, because the copies must stay equal.
inline Reduction kind_of_sum(const Target& target, bool has_copies) {
  const bool any_order = target.device != Device::cpu && !target.deterministic && !has_copies;
  return any_order ? Reduction::unordered_sum : Reduction::sum;
}

inline bool is_gpu(const Target& target) { return is_gpu(target.device); }

/// Returns the number of multiprocessors for which kernels of an accelerator split their work. If
/// it is not known, returns 1 for the emulated device and 128, as large GPUs have, for others.
inline int multiprocessors_of(const Target& target) {
  if (target.multiprocessors > 0) return target.multiprocessors;
  return target.device == Device::emulated ? 1 : 128;
}

}  // namespace tessera
