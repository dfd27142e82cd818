#include "hardware/gemm_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/affinity.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "ops/gemm/gemm.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

constexpr double kAllowedRun = 1;  // seconds that a run may take, whatever the budget
constexpr int kLeastRuns = 4;      // of a product: one for warm-up and the least samples

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

/// Returns the longest time that one run of a product may take, if `products` products of a type
/// share `seconds` seconds.
double longest_run(double seconds, size_t products) {
  return std::max(kAllowedRun, seconds / static_cast<double>(products) / kLeastRuns);
}

/// Throws the Error for a sweep in which no product is measured. `shortest` is about what one run
/// of the quickest product would take.
[[noreturn]] void refuse_sweep(const GemmSweep& sweep, size_t products, double shortest) {
  const double enough = std::ceil(shortest * static_cast<double>(products) * kLeastRuns);
  throw Error(
      "every product would take more than {:.3g} s a run on this machine, the quickest about "
      "{:.3g} s; lower --m, --n or --k{}",
      longest_run(sweep.seconds, products), shortest,
      enough <= kMostSweepSeconds ? fmt::format(", or raise --seconds above {:.0f}", enough) : "");
}

}  // namespace

bool asks_for(const GemmSweep& sweep, const GemmRate& product) {
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  return has(sweep.m, product.m) && has(sweep.n, product.n) && has(sweep.k, product.k) &&
         has(sweep.layouts, product.layout) && has(sweep.dtypes, product.dtype);
}

void require_memory(const GemmSweep& sweep, int64_t memory_bytes) {
  for (const DType dtype : sweep.dtypes) {
    for (const GemmRate& product : products_of(sweep, dtype)) {
      const auto bytes = static_cast<int64_t>(gemm_operand_bytes(product));
      if (bytes <= memory_bytes / 2) continue;
      throw Error(
          "the operands of the product {} take {}, more than half of the {} that this process may "
          "use; lower --m, --n or --k",
          describe(product), format_bytes(bytes), format_bytes(memory_bytes));
    }
  }
}

GemmSweepResult measure_gemm_sweep(const GemmSweep& sweep, int threads,
                                   const SweepProgress& progress) {
  const BoundTeam team(threads);
  const GemmMachine processor{
      .squares = [=](DType dtype) { return measure_square_gemms(threads, dtype); },
      .product = [=](const GemmRate& product,
                     const GemmBudget& budget) { return measure_gemm(product, threads, budget); }};
  return measure_gemm_sweep(sweep, processor, progress);
}

GemmSweepResult measure_gemm_sweep(const GemmSweep& sweep, const GemmMachine& machine,
                                   const SweepProgress& progress) {
  if (sweep.dtypes.empty()) {
    throw Error("there is no matrix product to measure: name a precision that this machine has");
  }
  GemmSweepResult result;
  size_t done = 0;
  size_t product_count = 0;
  double shortest = std::numeric_limits<double>::infinity();  // of the runs that are left out
  for (const DType dtype : sweep.dtypes) product_count += products_of(sweep, dtype).size();
  for (const DType dtype : sweep.dtypes) {
    progress(fmt::format("{} squares", dtype_name(dtype)), done, product_count);
    const std::vector<GemmRate> squares = machine.squares(dtype);
    result.rates.insert(result.rates.end(), squares.begin(), squares.end());
    const std::vector<GemmRate> products = products_of(sweep, dtype);
    const double share = sweep.seconds / static_cast<double>(products.size());
    for (const GemmRate& product : products) {
      require_no_interrupt();
      progress(describe(product), done++, product_count);
      if (has_product(result.rates, product)) continue;
      const double run_seconds = product.flops() / best_rate(squares);
      if (run_seconds > longest_run(sweep.seconds, products.size())) {
        result.left_out.push_back(product);
        shortest = std::min(shortest, run_seconds);
      } else {
        result.rates.push_back(machine.product(product, {.seconds = share}));
      }
    }
  }
  require_no_interrupt();
  if (product_count > 0 && result.left_out.size() == product_count) {
    refuse_sweep(sweep, product_count / sweep.dtypes.size(), shortest);
  }
  progress("done", product_count, product_count);
  return result;
}

bool has_gemm(DType dtype) {
  Runtime runtime(host_target(1));
  try {
    prepare_gemm(runtime, {.m = 16, .n = 16, .k = 16, .input = dtype, .output = dtype});
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace tessera
