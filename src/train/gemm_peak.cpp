#include "train/gemm_peak.h"

#include <algorithm>

#include "base/progress.h"
#include "ops/gemm/gemm.h"
#include "tensor/tensor.h"

namespace tessera {

double measure_gemm_peak(int threads, DType dtype) {
  constexpr int64_t kSide = 2048;
  constexpr double kSeconds = 0.4;
  constexpr int kLeast = 3;
  // Plain loops (f64) are hundreds of times slower: a smaller product tells as much.
  const int64_t side = dtype == DType::f64 ? 256 : kSide;
  MemoryPool pool;
  Context context(threads, Kernels::fast, &pool);
  const GemmShape shape{.m = side,
                        .n = side,
                        .k = side,
                        .input = dtype,
                        .output = dtype,
                        .transpose_b = true,
                        .threads = threads};
  const Gemm& gemm = prepare_gemm(context, shape);
  const Tensor a(pool, {side, side}, dtype);
  const Tensor b(pool, {side, side}, dtype);
  const Tensor c(pool, {side, side}, dtype);
  const Tensor workspace(pool, {std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8);
  for (const Tensor& operand : {a, b}) operand.fill_zero();
  double best = 0;
  const Stopwatch total;
  for (int runs = 0; runs <= kLeast || total.seconds() < kSeconds; ++runs) {
    const Stopwatch one;
    gemm.run(a.raw(), b.raw(), c.raw(), workspace.raw());
    if (runs > 0) best = std::max(best, shape.flops() / one.seconds());
  }
  return best;
}

}  // namespace tessera
