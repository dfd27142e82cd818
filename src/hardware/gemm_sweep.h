#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/usable_memory.h"
#include "hardware/gemm_rate.h"

namespace tessera {

/// The matrix products to measure: every m with every n and every k, in every layout and type.
struct GemmSweep {
  std::vector<int64_t> m{256, 512, 1024, 2048, 4096};
  std::vector<int64_t> n{256, 512, 1024, 2048, 4096};
  std::vector<int64_t> k{256, 1024, 4096};
  std::vector<GemmLayout> layouts{GemmLayout::forward};
  std::vector<DType> dtypes{DType::bf16, DType::f32};
  /// The time for measuring one dtype, shared equally by its products. Each product runs at least
  /// four times, so slow machines need longer.
  double seconds = 15;
};

/// The largest value that GemmSweep::seconds may have.
inline constexpr double kMostSweepSeconds = 1e6;

/// The result of a sweep.
struct GemmSweepResult {
  /// The squares (see measure_square_gemms()) and the requested products, each once.
  std::vector<GemmRate> rates;
  /// Products that were not measured and have no rates. One run would have taken more than a second
  /// and more than a quarter of the product's share of the seconds.
  std::vector<GemmRate> left_out;
};

/// A function that reports the progress of a sweep. It is called before the squares of each dtype,
/// before each product and at the end, with the name of the next measurement, the number of
/// products done and the number of all products.
using SweepProgress = std::function<void(const std::string& next, size_t done, size_t total)>;

/// Returns true if the sweep asks for the product.
bool asks_for(const GemmSweep& sweep, const GemmRate& product);

/// The functions that measure products on one machine.
struct GemmMachine {
  /// Measures the squares that the peak of a type is read from.
  std::function<std::vector<GemmRate>(DType)> squares;
  /// Measures a product and returns it with its rates.
  std::function<GemmRate(const GemmRate&, const GemmBudget&)> product;
};

/// Throws Error if the operands of a product of the sweep take more than half of `memory_bytes`.
void require_memory(const GemmSweep& sweep, int64_t memory_bytes = usable_memory().bytes);

/// Measures the products of the sweep, and the squares that the peak is read from. Throws Error if
/// it has no dtype, if every product would take too long, or if an InterruptGuard caught a signal.
GemmSweepResult measure_gemm_sweep(const GemmSweep& sweep, const GemmMachine& machine,
                                   const SweepProgress& progress);
/// Measures the sweep with threads of the processor. Binds each to a core if BoundTeam can.
GemmSweepResult measure_gemm_sweep(const GemmSweep& sweep, int threads,
                                   const SweepProgress& progress);

/// Returns true if this processor and build can multiply matrices of that type.
bool has_gemm(DType dtype);

}  // namespace tessera
