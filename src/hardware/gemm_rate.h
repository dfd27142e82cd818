#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
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

/// Whether it is a square product in the forward layout.
bool is_plain_square(const GemmRate& rate);

/// Rows of the squares of which the best is the GEMM peak.
inline constexpr std::array<int64_t, 4> kPeakSides{1024, 2048, 3072, 4096};
/// Whether it is a plain square of as many rows as the least of kPeakSides to the most.
bool is_peak_square(const GemmRate& rate);

/// "bf16 2048x512x1024" (m, n, k), with the layout where that is not forward.
std::string describe(const GemmRate& product);

/// The product that is measured for it, on so many threads.
GemmShape gemm_shape(const GemmRate& rate, int threads);

/// Bytes of A, B and C.
double gemm_operand_bytes(const GemmRate& product);

/// The product that `shape` names (its dtype, layout, m, n and k) with the rates of runs that took
/// so many seconds, one number a sample.
GemmRate rate_of_samples(GemmRate shape, std::span<const double> seconds);

/// The same, measured by time_gemm().
GemmRate measure_gemm(const GemmRate& shape, int threads, const GemmBudget& budget);

/// Plain squares of kPeakSides, measured for about a second together. Those of
/// which one run would take more than 0.3 s are left out; where that is all of them (plain loops),
/// one of 256 rows stands for them.
std::vector<GemmRate> measure_square_gemms(int threads, DType dtype);

/// The largest of the best rates. There is at least one.
double best_rate(std::span<const GemmRate> rates);

/// The GEMM peak, to which every MFU refers: the best rate of measure_square_gemms().
double measure_gemm_peak(int threads, DType dtype);

}  // namespace tessera
