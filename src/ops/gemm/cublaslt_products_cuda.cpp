#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "base/round_up.h"
#include "ops/gemm/cublaslt_products.h"
#include "ops/gemm/device_gemm.h"
#include "ops/gemm/tuned_products.h"

// The products that a rank runs by cuBLASLt. product() finds the description and the algorithm of a
// shape, or makes them at the first use: the algorithm comes from the run's table of tuned
// products, or else from the library's heuristic, which orders its algorithms by the time that it
// expects. run() enqueues the product. The library's A is our B, and its B is our A
// (column_major.h).

namespace tessera {
namespace {

constexpr int64_t kCublasLtAlignment = 256;  // bytes, of scratch memory
constexpr int kHeuristicCandidates = 8;      // more than the first, which may need too much memory

// Tables of tuned products hold an algorithm as plain bytes.
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(ProductAlgorithm));

}  // namespace

uint32_t CublasLtOperands::alignment() const {
  // The lowest bit that is set in any address is the largest power of two that divides all of them.
  const auto bits = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                    reinterpret_cast<uintptr_t>(c) | kProductAlignment;
  return uint32_t{1} << std::countr_zero(bits);
}

CublasLtWorkspace::CublasLtWorkspace(const Target& target, const GemmShape& shape,
                                     std::byte* memory)
    : address(align_up(memory, kCublasLtAlignment)), size(bytes(target, shape)) {}

int64_t CublasLtWorkspace::bytes(const Target& target, const GemmShape& shape) {
  return device_gemm_workspace_bytes(target, shape) - kCublasLtAlignment;
}

size_t CublasLtProducts::KeyHash::operator()(const CublasLtKey& key) const {
  return GemmShapeHash()(key.shape) ^ key.alignment;
}

CublasLtProducts::CublasLtProducts()
    : multiply_(library_.function<decltype(cublasLtMatmul)>("cublasLtMatmul")),
      handle_(nullptr, library_.function<decltype(cublasLtDestroy)>("cublasLtDestroy")) {
  cublasLtHandle_t handle = nullptr;
  library_.check(library_.function<decltype(cublasLtCreate)>("cublasLtCreate")(&handle),
                 "matrix products on the device cuda");
  handle_.reset(handle);
}

const CublasLtProducts::Product& CublasLtProducts::product(Runtime& runtime,
                                                           const CublasLtKey& key) {
  const auto found = products_.find(key);
  if (found != products_.end()) return found->second;
  return products_.emplace(key, make(runtime, key)).first->second;
}

void CublasLtProducts::run(const Product& product, const GemmShape& shape,
                           const CublasLtOperands& operands, const CublasLtWorkspace& workspace,
                           Stream& stream) const {
  // D = alpha A B + beta C, where C and D are the same memory.
  const float alpha = 1.0f;
  const float beta = shape.accumulate ? 1.0f : 0.0f;
  const CublasLtProduct& description = product.description;
  const cublasStatus_t status =
      multiply_(handle_.get(), description.operation(), &alpha, operands.b, description.a(),
                operands.a, description.b(), &beta, operands.c, description.d(), operands.c,
                description.d(), &product.algorithm, workspace.address,
                static_cast<size_t>(workspace.size), static_cast<cudaStream_t>(stream.handle()));
  // The text of the error is made only if it is needed: runs are frequent.
  if (status != CUBLAS_STATUS_SUCCESS) library_.check(status, describe(shape));
}

std::vector<cublasLtMatmulHeuristicResult_t> CublasLtProducts::candidates(
    const CublasLtProduct& description, const CublasLtKey& key, int64_t workspace_bytes,
    int limit) const {
  const CublasLtPreference preference(library_, workspace_bytes, key.alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(limit));
  int count = 0;
  const cublasStatus_t status =
      library_.function<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic")(
          handle_.get(), description.operation(), description.a(), description.b(), description.d(),
          description.d(), preference.get(), limit, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    count = 0;  // no algorithm: the error below says more
  } else {
    library_.check(status, describe(key.shape));
  }
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& result) {
    return result.state != CUBLAS_STATUS_SUCCESS ||
           result.workspaceSize > static_cast<size_t>(workspace_bytes);
  });
  if (results.empty()) {
    throw NoProductError(
        "{}, operands aligned to {} bytes: {} has no algorithm for this device within {} bytes of "
        "scratch memory",
        describe(key.shape), key.alignment, library_.version_text(), workspace_bytes);
  }
  return results;
}

std::vector<GemmShape> CublasLtProducts::shapes() const {
  std::vector<GemmShape> result;
  for (const auto& [key, product] : products_) {
    if (key.alignment == kProductAlignment) result.push_back(key.shape);
  }
  std::ranges::sort(result, {}, [](const GemmShape& shape) {
    return std::tuple(shape.flops(), shape.m, shape.n, shape.k, shape.input, shape.output,
                      shape.transpose_a, shape.transpose_b, shape.accumulate, shape.lda, shape.ldb,
                      shape.ldc);
  });
  return result;
}

CublasLtProducts::Product CublasLtProducts::make(Runtime& runtime, const CublasLtKey& key) const {
  const bool tf32 = runtime.target().tf32;
  Product product{CublasLtProduct(library_, key.shape, tf32), {}};
  const int64_t workspace_bytes = CublasLtWorkspace::bytes(runtime.target(), key.shape);
  // An algorithm of the table was measured on operands with this alignment, and may need it.
  const auto& table = runtime.cache<TunedProducts>();
  const TunedProduct* const tuned =
      key.alignment == kProductAlignment ? table.find(key.shape, tf32) : nullptr;
  if (tuned != nullptr) {
    std::memcpy(&product.algorithm, tuned->algorithm.data(), sizeof(product.algorithm));
    require_runnable(product, key.shape, workspace_bytes);
    return product;
  }
  if (table.in_use) {
    Logger().info("run.tuned_products does not have {}: {} chooses its algorithm",
                  describe(key.shape), library_.version_text());
  }
  product.algorithm =
      candidates(product.description, key, workspace_bytes, kHeuristicCandidates).front().algo;
  return product;
}

void CublasLtProducts::require_runnable(const Product& product, const GemmShape& shape,
                                        int64_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  const CublasLtProduct& description = product.description;
  const cublasStatus_t status =
      library_.function<decltype(cublasLtMatmulAlgoCheck)>("cublasLtMatmulAlgoCheck")(
          handle_.get(), description.operation(), description.a(), description.b(), description.d(),
          description.d(), &product.algorithm, &result);
  library_.check(status, "the algorithm that run.tuned_products has for " + describe(shape));
  if (result.workspaceSize <= static_cast<size_t>(workspace_bytes)) return;
  throw Error(
      "the algorithm that run.tuned_products has for {} asks for {} bytes of scratch memory; the "
      "plan has {}. Tune again with `tessera bench products`",
      describe(shape), result.workspaceSize, workspace_bytes);
}

}  // namespace tessera
