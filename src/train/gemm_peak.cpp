#include "train/gemm_peak.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/progress.h"
#include "base/random.h"
#include "ops/gemm/gemm.h"
#include "tensor/dispatch.h"
#include "tensor/tensor.h"

namespace tessera {
namespace {

/// Zeros would flatter the machine: they draw less power, which lets it clock higher.
void fill_random(const Tensor& tensor, const char* name, int threads) {
  const CounterRandom random(1, name);
  dispatch_floating(tensor.dtype(), [&](auto type) {
    using T = decltype(type);
    T* out = tensor.data<T>();
    parallel_ranges(threads, tensor.elements(), 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = static_cast<T>(static_cast<float>(random.normal(static_cast<uint64_t>(i))));
      }
    });
  });
}

}  // namespace

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
  fill_random(a, "a", threads);
  fill_random(b, "b", threads);
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
