#include <cstring>

#include "base/error.h"
#include "base/quantile.h"
#include "ops/gemm/column_major.h"
#include "ops/gemm/cublaslt_gemm.h"
#include "ops/gemm/cublaslt_products.h"
#include "ops/gemm/random_operand.h"

namespace tessera {
namespace {

/// The state of the measurement of a product's algorithms.
struct Measuring {
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
  const ColumnMajorProduct is = column_major(shape);
  const auto bytes = [](const ColumnMajorMatrix& matrix, DType dtype) {
    return matrix.columns * matrix.leading * dtype_size(dtype);
  };
  const auto b = random_operand(accelerator, bytes(is.a, shape.input), 1);
  const auto a = random_operand(accelerator, bytes(is.b, shape.input), 2);
  const auto c = accelerator.allocate(bytes(is.d, shape.output));
  const auto scratch = accelerator.allocate(device_gemm_workspace_bytes(target, shape));
  const Measuring measuring{
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
    measuring.seconds(product, 2);  // loads its kernel
    runs.push_back(runs_of_sample(measuring.seconds(product, 2), budget));
  }
  for (int round = 0; round < budget.rounds; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      product.algorithm = candidates[i].algo;
      seconds[i].push_back(measuring.seconds(product, runs[i]));
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
