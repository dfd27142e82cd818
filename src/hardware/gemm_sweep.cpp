#include "hardware/gemm_sweep.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "ops/gemm/gemm.h"

namespace tessera {
namespace {

std::vector<GemmRate> products_of(const GemmSweep& sweep, DType dtype) {
  std::vector<GemmRate> products;
  for (const GemmLayout layout : sweep.layouts) {
    for (const int64_t k : sweep.k) {
      for (const int64_t m : sweep.m) {
        for (const int64_t n : sweep.n) products.push_back({dtype, layout, m, n, k});
      }
    }
  }
  return products;
}

bool same_product(const GemmRate& one, const GemmRate& other) {
  return one.dtype == other.dtype && one.layout == other.layout && one.m == other.m &&
         one.n == other.n && one.k == other.k;
}

}  // namespace

std::vector<GemmRate> measure_gemm_sweep(const GemmSweep& sweep, int threads,
                                         const SweepProgress& progress) {
  std::vector<GemmRate> rates;
  size_t done = 0;
  size_t all = 0;
  for (const DType dtype : sweep.dtypes) all += products_of(sweep, dtype).size();
  for (const DType dtype : sweep.dtypes) {
    progress(fmt::format("{} squares", dtype_name(dtype)), done, all);
    const std::vector<GemmRate> squares = measure_square_gemms(threads, dtype);
    rates.insert(rates.end(), squares.begin(), squares.end());
    const std::vector<GemmRate> products = products_of(sweep, dtype);
    const GemmBudget budget{.seconds = sweep.seconds / static_cast<double>(products.size())};
    for (const GemmRate& product : products) {
      if (InterruptGuard::requested()) throw Error("interrupted: nothing was reported or written");
      progress(fmt::format("{} {}x{}x{}", dtype_name(dtype), product.m, product.n, product.k), done,
               all);
      ++done;
      const auto measured = std::find_if(squares.begin(), squares.end(), [&](const GemmRate& one) {
        return same_product(one, product);
      });
      if (measured == squares.end()) rates.push_back(measure_gemm(product, threads, budget));
    }
  }
  progress("done", all, all);
  return rates;
}

bool has_gemm(DType dtype) {
  Context context(1);
  try {
    prepare_gemm(context, {.m = 16, .n = 16, .k = 16, .input = dtype, .output = dtype});
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace tessera
