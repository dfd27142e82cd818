#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hardware/gemm_rate.h"

namespace tessera {

/// Which matrix products are measured: every m with every n and every k, in every layout and type.
struct GemmSweep {
  std::vector<int64_t> m{256, 512, 1024, 2048, 4096};
  std::vector<int64_t> n{256, 512, 1024, 2048, 4096};
  std::vector<int64_t> k{256, 1024, 4096};
  std::vector<GemmLayout> layouts{GemmLayout::forward};
  std::vector<DType> dtypes{DType::bf16, DType::f32};
  /// What the measuring of one type may take, shared equally by its products. Each is run three
  /// times at least, so that slow machines need longer.
  double seconds = 15;
};

/// Called before each product with what is measured next, how many are done and how many there are.
using SweepProgress = std::function<void(const std::string& what, size_t done, size_t all)>;

/// Measures the sweep, and square products beside it (see measure_square_gemms()) from which the
/// peak is read; a square that is one of the sweep's is measured once. A signal that an
/// InterruptGuard caught ends it with an Error.
std::vector<GemmRate> measure_gemm_sweep(const GemmSweep& sweep, int threads,
                                         const SweepProgress& progress);

/// Whether this processor and build have matrix products of that type.
bool has_gemm(DType dtype);

}  // namespace tessera
