#include "hardware/gemm_rate.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "hardware/random_fill.h"
#include "hardware/repeats.h"
#include "ops/gemm/gemm.h"
#include "tensor/tensor.h"

namespace tessera {
namespace {

constexpr int64_t kSmallSide = 256;
constexpr double kLongestRun = 1;  // seconds

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

GemmRate square(DType dtype, int64_t side) {
  return {.dtype = dtype, .m = side, .n = side, .k = side};
}

/// Squares of these sides, growing; those that would take too long left out.
std::vector<GemmRate> measure_squares(int threads, DType dtype, std::span<const int64_t> sides,
                                      const GemmBudget& budget) {
  const GemmRate probe =
      measure_gemm(square(dtype, kSmallSide), threads, {.seconds = 0, .least_runs = 1});
  std::vector<GemmRate> rates;
  for (const int64_t side : sides) {
    const double known = rates.empty() ? probe.best : rates.back().best;
    if (square(dtype, side).flops() / known > kLongestRun) break;
    rates.push_back(measure_gemm(square(dtype, side), threads, budget));
  }
  if (rates.empty()) rates.push_back(measure_gemm(square(dtype, kSmallSide), threads, budget));
  return rates;
}

}  // namespace

GemmLayout gemm_layout_from_name(std::string_view name) {
  const auto found = std::find(kGemmLayouts.begin(), kGemmLayouts.end(), name);
  if (found == kGemmLayouts.end()) {
    const std::vector<std::string> known(kGemmLayouts.begin(), kGemmLayouts.end());
    throw Error("there is no layout of matrix products '{}'; known are {}", name,
                join(known, ", "));
  }
  return static_cast<GemmLayout>(found - kGemmLayouts.begin());
}

GemmRate measure_gemm(GemmRate shape, int threads, const GemmBudget& budget) {
  MemoryPool pool;
  Context context(threads, Kernels::fast, &pool);
  const GemmShape product = gemm_shape(shape, threads);
  const Gemm& gemm = prepare_gemm(context, product);
  const Tensor a(pool, {shape.m, shape.k}, product.input);
  const Tensor b(pool, {shape.k, shape.n}, product.input);
  const Tensor c(pool, {shape.m, shape.n}, product.output);
  const Tensor workspace(pool, {std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8);
  fill_normal(a, "a", 1, threads);
  fill_normal(b, "b", 1, threads);
  c.fill_zero();
  std::vector<double> seconds;
  const auto run = [&] {
    const Stopwatch watch;
    gemm.run(a.raw(), b.raw(), c.raw(), workspace.raw());
    return watch.seconds();
  };
  run();
  const Stopwatch total;
  while (static_cast<int>(seconds.size()) < budget.least_runs || total.seconds() < budget.seconds) {
    seconds.push_back(run());
  }
  shape.best = shape.flops() / *std::min_element(seconds.begin(), seconds.end());
  shape.median = shape.flops() / quantile(seconds, 0.5);
  return shape;
}

std::vector<GemmRate> measure_square_gemms(int threads, DType dtype) {
  constexpr int64_t kSides[] = {1024, 2048, 3072, 4096};
  return measure_squares(threads, dtype, kSides, {.seconds = 0.3, .least_runs = 2});
}

double best_rate(std::span<const GemmRate> rates) {
  TESSERA_CHECK(!rates.empty(), "no rates");
  return std::max_element(rates.begin(), rates.end(),
                          [](const auto& one, const auto& other) { return one.best < other.best; })
      ->best;
}

double measure_gemm_peak(int threads, DType dtype) {
  constexpr int64_t kSides[] = {2048};
  return best_rate(measure_squares(threads, dtype, kSides, {.seconds = 0.4, .least_runs = 3}));
}

}  // namespace tessera
