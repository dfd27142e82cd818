#include "hardware/gemm_sweep.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "hardware/repeats.h"
#include "ops/gemm/gemm.h"
#include "tensor/memory_pool.h"

namespace tessera {
namespace {

constexpr double kLongestRun = 1;  // seconds
constexpr int kLeastRuns = 4;      // of a product: one of warm-up and the least samples

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

bool has_product(const std::vector<GemmRate>& rates, const GemmRate& product) {
  return std::any_of(rates.begin(), rates.end(), [&](const GemmRate& rate) {
    return rate.dtype == product.dtype && rate.layout == product.layout && rate.m == product.m &&
           rate.n == product.n && rate.k == product.k;
  });
}

}  // namespace

bool asks_for(const GemmSweep& sweep, const GemmRate& product) {
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  return has(sweep.m, product.m) && has(sweep.n, product.n) && has(sweep.k, product.k) &&
         has(sweep.layouts, product.layout) && has(sweep.dtypes, product.dtype);
}

void require_memory(const GemmSweep& sweep) {
  for (const DType dtype : sweep.dtypes) {
    for (const GemmRate& product : products_of(sweep, dtype)) {
      const auto bytes = static_cast<int64_t>(gemm_operand_bytes(product));
      if (bytes <= physical_memory() / 2) continue;
      throw Error(
          "the operands of the product {} take {}, more than half of this machine's {}; lower --m, "
          "--n or --k",
          describe(product), format_bytes(bytes), format_bytes(physical_memory()));
    }
  }
}

GemmSweepResult measure_gemm_sweep(const GemmSweep& sweep, int threads,
                                   const SweepProgress& progress) {
  GemmSweepResult result;
  size_t done = 0;
  size_t all = 0;
  for (const DType dtype : sweep.dtypes) all += products_of(sweep, dtype).size();
  for (const DType dtype : sweep.dtypes) {
    progress(fmt::format("{} squares", dtype_name(dtype)), done, all);
    const std::vector<GemmRate> squares = measure_square_gemms(threads, dtype);
    result.rates.insert(result.rates.end(), squares.begin(), squares.end());
    const std::vector<GemmRate> products = products_of(sweep, dtype);
    const double share = sweep.seconds / static_cast<double>(products.size());
    for (const GemmRate& product : products) {
      require_no_interrupt();
      progress(describe(product), done++, all);
      if (has_product(result.rates, product)) continue;
      if (product.flops() / best_rate(squares) > std::max(kLongestRun, share / kLeastRuns)) {
        result.left_out.push_back(product);
      } else {
        result.rates.push_back(measure_gemm(product, threads, {.seconds = share}));
      }
    }
  }
  require_no_interrupt();
  if (all > 0 && result.left_out.size() == all) {
    throw Error(
        "every product would take more than {} s a run on this machine; lower --m, --n or --k, or "
        "raise --seconds",
        kLongestRun);
  }
  progress("done", all, all);
  return result;
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
