#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <cublasLt.h>

#include "device/shared_library.h"
#include "ops/gemm/gemm.h"

namespace tessera {

/// NVIDIA's library of matrix products, loaded when a device first needs it.
class CublasLt {
 public:
  /// Throws Error if the system has no cuBLASLt of the version that we were built for.
  CublasLt();

  /// A function of the library by its type and name.
  template <typename Function>
  Function* function(const char* name) const {
    return library_.function<Function>(name);
  }
  /// Throws Error, which begins with `what` and has the library's words, unless the call succeeded.
  void check(cublasStatus_t status, const std::string& what) const;
  /// "cuBLASLt 130100".
  std::string version() const;

 private:
  SharedLibrary library_;
};

/// The library's descriptions of one product: the operation, and where its matrices lie. They need
/// no device.
class CublasLtProduct {
 public:
  /// `tf32` lets products of f32 round their operands to TF32. Throws Error, which names the shape,
  /// if the library does not take it.
  CublasLtProduct(const CublasLt& library, const GemmShape& shape, bool tf32);

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  /// The library's A is our B, and its B our A (see ColumnMajorProduct).
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t d() const { return d_.get(); }

 private:
  template <typename Pointer>
  using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, cublasStatus_t (*)(Pointer)>;

  Owned<cublasLtMatmulDesc_t> operation_;
  Owned<cublasLtMatrixLayout_t> a_;
  Owned<cublasLtMatrixLayout_t> b_;
  Owned<cublasLtMatrixLayout_t> d_;
};

/// What a search for algorithms may choose from.
class CublasLtPreference {
 public:
  /// Algorithms that need at most `workspace_bytes`, take operands aligned to `alignment` bytes,
  /// and add up the parts of a sum in f32, in one order.
  CublasLtPreference(const CublasLt& library, int64_t workspace_bytes, uint32_t alignment);

  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                  cublasStatus_t (*)(cublasLtMatmulPreference_t)>
      preference_;
};

/// The library's word for an element's type. Throws InternalError for one that no device computes
/// in.
cudaDataType_t cublaslt_type(DType dtype);

/// "a product [512, 64] x [64, 32] of bf16 into f32".
std::string describe(const GemmShape& shape);

}  // namespace tessera
