#include "ops/gemm/cublaslt_gemm.h"
#include "ops/gemm/cublaslt_products.h"

namespace tessera {
namespace {

/// Sets C = 0: the product if k = 0. C may have gaps between its rows.
void clear_product(const GemmShape& shape, void* c, Stream& stream) {
  const int64_t element = dtype_size(shape.output);
  for (int64_t row = 0; row < shape.m; ++row) {
    stream.fill_zero(static_cast<std::byte*>(c) + row * shape.ldc * element, shape.n * element);
  }
}

}  // namespace

void cublaslt_gemm(const Execution& execution, const GemmShape& asked, const void* a, const void* b,
                   void* c, std::byte* workspace) {
  const GemmShape shape = tuned_shape(asked);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    if (!shape.accumulate) clear_product(shape, c, *execution.stream);
    return;
  }
  auto& products = execution.runtime.cache<CublasLtProducts>();
  const CublasLtOperands operands{a, b, c};
  products.run(products.product(execution.runtime, {shape, operands.alignment()}), shape, operands,
               CublasLtWorkspace(execution.runtime.target(), shape, workspace), *execution.stream);
}

void require_cublaslt(Runtime& runtime) { runtime.cache<CublasLtProducts>(); }

std::string cublaslt_version(Runtime& runtime) {
  return runtime.cache<CublasLtProducts>().library().version_text();
}

std::vector<GemmShape> cublaslt_shapes(Runtime& runtime) {
  return runtime.cache<CublasLtProducts>().shapes();
}

}  // namespace tessera
