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

GemmShape gemm_shape(const GemmRate& rate, int threads) {
  const bool weight_gradient = rate.layout == GemmLayout::weight_gradient;
  return {.m = rate.m,
          .n = rate.n,
          .k = rate.k,
          .input = rate.dtype,
          .output = weight_gradient ? accumulation_dtype(rate.dtype) : rate.dtype,
          .transpose_a = weight_gradient,
          .transpose_b = rate.layout == GemmLayout::forward,
          .accumulate = weight_gradient,
          .threads = threads};
}

GemmRate rate_of_samples(GemmRate shape, std::span<const double> seconds) {
  shape.best = shape.flops() / *std::min_element(seconds.begin(), seconds.end());
  shape.median = shape.flops() / quantile(seconds, 0.5);
  return shape;
}

GemmRate measure_gemm(const GemmRate& shape, int threads, const GemmBudget& budget) {
  return rate_of_samples(shape, time_gemm(gemm_shape(shape, threads), threads, budget));
}

bool is_plain_square(const GemmRate& rate) {
  return rate.layout == GemmLayout::forward && rate.m == rate.n && rate.n == rate.k;
}

bool is_peak_square(const GemmRate& rate) {
  return is_plain_square(rate) && rate.m >= kPeakSides.front() && rate.m <= kPeakSides.back();
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
  constexpr int kOneSet = 1;  // one set of operands, however many threads work on it
  return timed_gemm_bytes(gemm_shape(product, kOneSet), kOneSet);
}

std::vector<GemmRate> measure_square_gemms(int threads, DType dtype) {
  constexpr int64_t kSmallSide = 256;
  constexpr double kLongestRun = 0.3;  // seconds
  constexpr GemmBudget kBudget{.seconds = 0.2, .least_samples = 2};
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
