#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hardware/gemm_time.h"
#include "tensor/dtype.h"

namespace tessera {

/// How a matrix product's operands lie in memory: the three products of a linear layer whose weight
/// is stored [out, in].
enum class GemmLayout {
  forward,          ///< C = A Bᵀ, C of the operands' type
  input_gradient,   ///< C = A B, C of the operands' type
  weight_gradient,  ///< C += Aᵀ B, C of the accumulation type
};

/// What users call them, in the order of GemmLayout.
inline constexpr std::array<std::string_view, 3> kGemmLayouts{"forward", "input_gradient",
                                                              "weight_gradient"};
/// The inverse; throws Error naming the known ones.
GemmLayout gemm_layout_from_name(std::string_view name);

/// One matrix product, C being [m, n], and the floating-point operations a second that it reached.
struct GemmRate {
  DType dtype = DType::f32;  ///< of A and B
  GemmLayout layout = GemmLayout::forward;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  double best = 0;    ///< of the fastest sample
  double median = 0;  ///< of the median sample

  double flops() const {
    return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  bool operator==(const GemmRate&) const = default;
};

/// Measures the product that `shape` names (its dtype, layout, m, n and k) by time_gemm(), and
/// gives it with its rates.
GemmRate measure_gemm(GemmRate shape, int threads, const GemmBudget& budget);

/// Square products in the forward layout, of 1024, 2048, 3072 and 4096 rows. Where these are slow,
/// those of which one run would take more than a second are left out, and smaller ones stand for
/// them: of 256 rows at least.
std::vector<GemmRate> measure_square_gemms(int threads, DType dtype);

/// The largest of the best rates. There is at least one.
double best_rate(std::span<const GemmRate> rates);

/// The best rate of a square product of 2048 rows, measured for a few tenths of a second: what the
/// MFU of a training run refers to where no hardware file is given. Where that takes more than a
/// second a run (plain loops), a product of 256 rows stands for it.
double measure_gemm_peak(int threads, DType dtype);

}  // namespace tessera
