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
  /// What the measuring of one type may take, shared equally by its products. Each is run four
  /// times at least, so that slow machines need longer.
  double seconds = 15;
};

/// The most that GemmSweep::seconds may be.
inline constexpr double kMostSweepSeconds = 1e6;

/// What came of a sweep.
struct GemmSweepResult {
  std::vector<GemmRate> rates;  ///< of squares (see measure_square_gemms()) and the products asked
                                ///< for, each once
  /// Products whose run would have taken more than a second, and more than a quarter of their share
  /// of the seconds: not measured, without rates.
  std::vector<GemmRate> left_out;
};

/// Called before each product with what is measured next, how many are done and how many there are.
using SweepProgress = std::function<void(const std::string& what, size_t done, size_t all)>;

/// Whether a product is one of those that the sweep asks for.
bool asks_for(const GemmSweep& sweep, const GemmRate& product);

/// Throws Error when the operands of a product of the sweep take more than half of the machine's
/// memory.
void require_memory(const GemmSweep& sweep);

/// Measures the sweep, and square products beside it from which the peak is read, each thread bound
/// to a core (see BoundTeam). Throws Error when all products would take too long, and when a signal
/// has come that an InterruptGuard caught.
GemmSweepResult measure_gemm_sweep(const GemmSweep& sweep, int threads,
                                   const SweepProgress& progress);

/// Whether this processor and build have matrix products of that type.
bool has_gemm(DType dtype);

}  // namespace tessera
