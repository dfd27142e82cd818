#include "hardware/gemm_time.h"

#include <algorithm>
#include <iterator>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "hardware/random_fill.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

/// The layout of a matrix in memory: its rows, and the elements from one row to the next.
struct Matrix {
  int64_t rows;
  int64_t leading;
};
Matrix matrix_a(const GemmShape& shape) {
  const int64_t tight = shape.transpose_a ? shape.m : shape.k;
  return {shape.transpose_a ? shape.k : shape.m, std::max(shape.lda, tight)};
}
Matrix matrix_b(const GemmShape& shape) {
  const int64_t tight = shape.transpose_b ? shape.k : shape.n;
  return {shape.transpose_b ? shape.n : shape.k, std::max(shape.ldb, tight)};
}
Matrix matrix_c(const GemmShape& shape) { return {shape.m, std::max(shape.ldc, shape.n)}; }

/// Returns the number of threads that each run a copy of the product at the same time.
int copies_of(const GemmShape& shape, int threads) { return shape.threads == 1 ? threads : 1; }

/// The operands of one copy of a product.
struct Operands {
  Operands(const GemmShape& shape, const Gemm& gemm, int threads)
      : a(normal(matrix_a(shape), shape.input, "a", threads)),
        b(normal(matrix_b(shape), shape.input, "b", threads)),
        c(normal(matrix_c(shape), shape.output, "c", threads)),
        workspace({std::max<int64_t>(gemm.workspace_bytes(), 1)}, DType::u8),
        packed({std::max<int64_t>(gemm.packed_bytes(), 1)}, DType::u8),
        b_of_run(gemm.pack(b.raw(), packed.raw())) {}

  static Tensor normal(const Matrix& matrix, DType dtype, const char* name, int threads) {
    Tensor tensor({matrix.rows, matrix.leading}, dtype);
    fill_normal(tensor, name, 1, threads);
    return tensor;
  }

  Tensor a, b, c, workspace, packed;
  const void* b_of_run;  // b, or `packed` if b was laid out for the product
};

}  // namespace

double timed_gemm_bytes(const GemmShape& shape, int threads) {
  const auto bytes = [](const Matrix& matrix, DType dtype) {
    return static_cast<double>(matrix.rows) * static_cast<double>(matrix.leading) *
           static_cast<double>(dtype_size(dtype));
  };
  return copies_of(shape, threads) *
         (bytes(matrix_a(shape), shape.input) +
          (shape.packed_b ? 2 : 1) * bytes(matrix_b(shape), shape.input) +
          bytes(matrix_c(shape), shape.output));
}

double seconds_a_run(double elapsed, int64_t repeats, int copies) {
  return elapsed / static_cast<double>(repeats * copies);
}

std::vector<double> time_gemm(const GemmShape& shape, int threads, const GemmBudget& budget) {
  Runtime runtime(host_target(threads));
  const Stopwatch watch;
  return time_gemm(runtime, shape, budget, [&] { return watch.seconds(); });
}

std::vector<double> time_gemm(Runtime& runtime, const GemmShape& shape, const GemmBudget& budget,
                              const std::function<double()>& clock) {
  constexpr double kLeastSeconds = 200e-6;  // of a sample, far above the clock's resolution
  const Gemm& gemm = prepare_gemm(runtime, shape);
  const int copies = copies_of(shape, runtime.threads());
  std::vector<Operands> operands;
  for (int copy = 0; copy < copies; ++copy) {
    operands.emplace_back(shape, gemm, runtime.threads());
  }
  const auto sample = [&](int64_t repeats) {
    const double before = clock();
    parallel_ranges(copies, copies, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t copy = begin; copy < end; ++copy) {
        const Operands& copy_operands = operands[static_cast<size_t>(copy)];
        for (int64_t i = 0; i < repeats; ++i) {
          gemm.run(copy_operands.a.raw(), copy_operands.b_of_run, copy_operands.c.raw(),
                   copy_operands.workspace.raw());
        }
      }
    });
    return clock() - before;
  };
  sample(1);  // touches all memory
  const double begin = clock();
  int64_t repeats = 1;
  double seconds = sample(repeats);
  while (seconds < kLeastSeconds) seconds = sample(repeats *= 2);
  std::vector<double> times;
  while (true) {
    times.push_back(seconds_a_run(seconds, repeats, copies));
    const bool enough =
        std::ssize(times) >= budget.least_samples && clock() - begin >= budget.seconds;
    if (enough || InterruptGuard::requested()) return times;
    seconds = sample(repeats);
  }
}

}  // namespace tessera
