#include <cstring>

#include "base/error.h"
#include "base/quantile.h"
#include "ops/gemm/column_major.h"
#include "ops/gemm/cublaslt_gemm.h"
#include "ops/gemm/cublaslt_products.h"

// Finds the fastest algorithm of cuBLASLt for one product. The library proposes candidates. A
// candidate is warmed up, then timed once to choose how many runs make a sample. After that, every
// round takes a sample of every candidate, so a change of the GPU's clock affects all of them.

namespace tessera {
namespace {

constexpr int kWarmUpRuns = 2;  // the first loads the kernel

/// A product whose algorithms are measured, with its operands, a stream and two events.
struct AlgorithmTimer {
  const CublasLtProducts& products;
  const GemmShape& shape;
  CublasLtOperands operands;
  CublasLtWorkspace workspace;
  std::shared_ptr<Stream> stream;
  std::unique_ptr<Event> begin;
  std::unique_ptr<Event> end;

  /// Returns the seconds of one run, over `runs` runs that follow each other.
  double seconds(const CublasLtProducts::Product& product, int64_t runs) const {
    stream->record(*begin);
    for (int64_t i = 0; i < runs; ++i) {
      products.run(product, shape, operands, workspace, *stream);
    }
    stream->record(*end);
    end->synchronize();
    return end->seconds_since(*begin) / static_cast<double>(runs);
  }
};

}  // namespace

TunedProduct tune_cublaslt(Runtime& runtime, const GemmShape& asked, const TuningBudget& budget) {
  const GemmShape shape = tuned_shape(asked);
  const Target& target = runtime.target();
  Accelerator& accelerator = *runtime.accelerator();
  auto& products = runtime.cache<CublasLtProducts>();
  const ColumnMajorProduct matrices = column_major(shape);
  const auto bytes = [](const ColumnMajorMatrix& matrix, DType dtype) {
    return matrix.columns * matrix.leading * dtype_size(dtype);
  };
  // The library's A is the GemmShape's B (see ColumnMajorProduct).
  const auto b = random_operand(accelerator, bytes(matrices.a, shape.input), 1);
  const auto a = random_operand(accelerator, bytes(matrices.b, shape.input), 2);
  const auto c = accelerator.allocate(bytes(matrices.d, shape.output));
  const auto scratch = accelerator.allocate(device_gemm_workspace_bytes(target, shape));
  const AlgorithmTimer timer{
      .products = products,
      .shape = shape,
      .operands = {a->address(), b->address(), c->address()},
      .workspace = {target, shape, static_cast<std::byte*>(scratch->address())},
      .stream = accelerator.make_stream(),
      .begin = accelerator.make_event(),
      .end = accelerator.make_event()};

  CublasLtProducts::Product product{CublasLtProduct(products.library(), shape, target.tf32), {}};
  const auto candidates =
      products.candidates(product.description, {shape, kProductAlignment},
                          CublasLtWorkspace::bytes(target, shape), budget.candidates);
  std::vector<std::vector<double>> seconds(candidates.size());
  std::vector<int64_t> runs;
  for (const auto& candidate : candidates) {
    product.algorithm = candidate.algo;
    timer.seconds(product, kWarmUpRuns);
    runs.push_back(runs_of_sample(timer.seconds(product, kWarmUpRuns), budget));
  }
  for (int round = 0; round < budget.rounds; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      product.algorithm = candidates[i].algo;
      seconds[i].push_back(timer.seconds(product, runs[i]));
    }
  }
  const size_t best = fastest_candidate(seconds);
  TunedProduct result{.shape = shape,
                      .tf32 = target.tf32,
                      .algorithm = {},
                      .seconds = quantile(seconds[best], 0.5),
                      .heuristic_seconds = quantile(seconds[0], 0.5)};
  std::memcpy(result.algorithm.data(), &candidates[best].algo, result.algorithm.size());
  return result;
}

}  // namespace tessera
