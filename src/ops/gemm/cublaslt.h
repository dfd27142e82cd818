#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "device/cublaslt_library_cuda.h"
#include "ops/gemm/gemm.h"

namespace tessera {

/// Owns an object of cuBLASLt, NVIDIA's library of matrix products, and destroys it.
template <typename Pointer>
using CublasLtOwned = std::unique_ptr<std::remove_pointer_t<Pointer>, cublasStatus_t (*)(Pointer)>;

/// Returns the object that the library's function `create_name`, of type Create, makes from the
/// arguments. The function `destroy_name` will destroy it. Errors begin with `what`.
template <typename Pointer, typename Create, typename Destroy, typename... Arguments>
CublasLtOwned<Pointer> cublaslt_create(const CublasLt& library, const char* create_name,
                                       const char* destroy_name, const std::string& what,
                                       Arguments... arguments) {
  Pointer made = nullptr;
  library.check(library.function<Create>(create_name)(&made, arguments...), what);
  return CublasLtOwned<Pointer>(made, library.function<Destroy>(destroy_name));
}

/// Returns the description of a product's operation. Errors begin with `what`.
CublasLtOwned<cublasLtMatmulDesc_t> cublaslt_operation(const CublasLt& library,
                                                       cublasComputeType_t compute,
                                                       bool transpose_a, bool transpose_b,
                                                       const std::string& what);

/// The library's descriptions of one product: the operation, and the layouts of its matrices. They
/// need no device.
class CublasLtProduct {
 public:
  /// If `tf32`, products of f32 round operands to TF32. Throws Error, which names the shape, if the
  /// library rejects it.
  CublasLtProduct(const CublasLt& library, const GemmShape& shape, bool tf32);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  /// Returns the library's A, which is the GemmShape's B. b() is the GemmShape's A (see
  /// ColumnMajorProduct).
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t d() const { return d_.get(); }

 private:
  CublasLtOwned<cublasLtMatmulDesc_t> operation_;
  CublasLtOwned<cublasLtMatrixLayout_t> a_;
  CublasLtOwned<cublasLtMatrixLayout_t> b_;
  CublasLtOwned<cublasLtMatrixLayout_t> d_;
};

/// The limits of a search among the library's algorithms for a product.
class CublasLtPreference {
 public:
  /// Allows algorithms that need at most `workspace_bytes` and take operands aligned to `alignment`
  /// bytes. Algorithms that divide k among blocks must add the sums in f32, in a fixed order.
  CublasLtPreference(const CublasLt& library, int64_t workspace_bytes, uint32_t alignment);

  cublasLtMatmulPreference_t get() const { return preference_.get(); }
  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    library_.check(library_.function<decltype(cublasLtMatmulPreferenceSetAttribute)>(
                       "cublasLtMatmulPreferenceSetAttribute")(preference_.get(), attribute, &value,
                                                               sizeof(value)),
                   "a preference among algorithms");
  }

 private:
  const CublasLt& library_;
  CublasLtOwned<cublasLtMatmulPreference_t> preference_;
};

/// Returns the library's constant for an element's type. Throws InternalError for a type that no
/// device computes in.
cudaDataType_t cublaslt_type(DType dtype);

/// Returns a text for errors: "a product [512, 64] x [64, 32] of bf16 into f32".
std::string describe(const GemmShape& shape);

}  // namespace tessera
