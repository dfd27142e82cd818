#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "hardware/gemm_time.h"
#include "tensor/dtype.h"

namespace tessera {

// The rates of matrix products, and how a processor's are measured.

/// The layout of a matrix product's operands in memory. These are the three products of a linear
/// layer whose weight is stored as [out, in].
enum class GemmLayout {
  forward,          ///< C = A Bᵀ, C has the operands' type
  input_gradient,   ///< C = A B, C has the operands' type
  weight_gradient,  ///< C += Aᵀ B, C has the accumulation type
};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<GemmLayout>{"forward", "input_gradient",
                                                                      "weight_gradient"};

/// One matrix product, where C is [m, n] and sums have k terms, and the rates that it reached in
/// floating-point operations per second. The rates are 0 before it is measured.
struct GemmRate {
  DType dtype = DType::f32;  ///< type of A and B
  GemmLayout layout = GemmLayout::forward;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  double best = 0;    ///< rate of the fastest sample
  double median = 0;  ///< rate of the median sample

  double flops() const {
    return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  bool operator==(const GemmRate&) const = default;
};

/// Returns true if the product is square and in the forward layout.
bool is_plain_square(const GemmRate& product);

/// The rows of the plain squares whose best rate is a processor's GEMM peak.
inline constexpr std::array<int64_t, 4> kPeakSides{1024, 2048, 3072, 4096};
/// Returns true if the product is a plain square with kPeakSides.front() to kPeakSides.back() rows.
bool is_peak_square(const GemmRate& product);

/// Returns a text such as "bf16 2048x512x1024" (m, n, k), with the layout unless it is forward.
std::string describe(const GemmRate& product);

/// Returns the product as the operations of a step compute it, on `threads` threads.
GemmShape gemm_shape(const GemmRate& product, int threads);

/// Returns the bytes of A, B and C.
double gemm_operand_bytes(const GemmRate& product);

/// Returns the product with its rates. `seconds` has the time of one run for each sample.
GemmRate rate_of_samples(GemmRate product, std::span<const double> seconds);

/// Measures the product with time_gemm() and returns it with its rates.
GemmRate measure_gemm(const GemmRate& product, int threads, const GemmBudget& budget);

/// Measures plain squares of kPeakSides, in about a second together. Leaves out a square, and all
/// larger ones, if one run of it would take more than 0.3 s. If that leaves out all squares (plain
/// loops), measures a square of 256 rows instead.
std::vector<GemmRate> measure_square_gemms(int threads, DType dtype);

/// Returns the largest of the best rates. There must be at least one.
double best_rate(std::span<const GemmRate> rates);

/// Measures a processor's GEMM peak, to which MFU refers: the best rate of measure_square_gemms().
double measure_gemm_peak(int threads, DType dtype);

}  // namespace tessera
