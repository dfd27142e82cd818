#include "hardware/gemm_rate.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/quantile.h"
#include "base/text.h"
#include "ops/gemm/gemm.h"

namespace tessera {
namespace {

GemmRate square(DType dtype, int64_t side) {
  return {.dtype = dtype, .m = side, .n = side, .k = side};
}

}  // namespace

GemmShape gemm_shape(const GemmRate& product, int threads) {
  const bool weight_gradient = product.layout == GemmLayout::weight_gradient;
  return {.m = product.m,
          .n = product.n,
          .k = product.k,
          .input = product.dtype,
          .output = weight_gradient ? accumulation_dtype(product.dtype) : product.dtype,
          .transpose_a = weight_gradient,
          .transpose_b = product.layout == GemmLayout::forward,
          .accumulate = weight_gradient,
          .threads = threads};
}

GemmRate rate_of_samples(GemmRate product, std::span<const double> seconds) {
  product.best = product.flops() / *std::min_element(seconds.begin(), seconds.end());
  product.median = product.flops() / quantile(seconds, 0.5);
  return product;
}

GemmRate measure_gemm(const GemmRate& product, int threads, const GemmBudget& budget) {
  return rate_of_samples(product, time_gemm(gemm_shape(product, threads), threads, budget));
}

bool is_plain_square(const GemmRate& product) {
  return product.layout == GemmLayout::forward && product.m == product.n && product.n == product.k;
}

bool is_peak_square(const GemmRate& product) {
  return is_plain_square(product) && product.m >= kPeakSides.front() &&
         product.m <= kPeakSides.back();
}

std::string describe(const GemmRate& product) {
  std::string text =
      fmt::format("{} {}x{}x{}", dtype_name(product.dtype), product.m, product.n, product.k);
  if (product.layout != GemmLayout::forward) {
    text += fmt::format(" {}", word(product.layout));
  }
  return text;
}

double gemm_operand_bytes(const GemmRate& product) {
  constexpr int kThreads = 1;  // timed_gemm_bytes() then counts one set of operands
  return timed_gemm_bytes(gemm_shape(product, kThreads), kThreads);
}

std::vector<GemmRate> measure_square_gemms(int threads, DType dtype) {
  constexpr int64_t kSmallSide = 256;
  constexpr double kLongestRun = 0.3;  // seconds
  constexpr GemmBudget kBudget{.seconds = 0.2, .least_samples = 2};
  // With 0 seconds the budget is one sample, which is enough to predict the time of larger squares.
  const GemmRate probe =
      measure_gemm(square(dtype, kSmallSide), threads, {.seconds = 0, .least_samples = 1});
  std::vector<GemmRate> rates;
  for (const int64_t side : kPeakSides) {
    // The rate of the next smaller square predicts how long a run takes.
    const double known_rate = rates.empty() ? probe.best : rates.back().best;
    if (square(dtype, side).flops() / known_rate > kLongestRun) break;
    rates.push_back(measure_gemm(square(dtype, side), threads, kBudget));
  }
  if (rates.empty()) rates.push_back(measure_gemm(square(dtype, kSmallSide), threads, kBudget));
  return rates;
}

double best_rate(std::span<const GemmRate> rates) {
  TESSERA_CHECK(!rates.empty(), "no rates");
  return std::ranges::max(rates, {}, &GemmRate::best).best;
}

double measure_gemm_peak(int threads, DType dtype) {
  return best_rate(measure_square_gemms(threads, dtype));
}

}  // namespace tessera
