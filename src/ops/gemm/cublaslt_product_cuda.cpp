#include "base/error.h"
#include "ops/gemm/column_major.h"
#include "ops/gemm/cublaslt.h"

// The descriptions by which cuBLASLt knows a product: the operation (how sums are taken, which
// operands are transposed), the layouts of its three matrices, and the limits of a search for
// algorithms. Each is an object of the library, which C++ code owns through CublasLtOwned.

namespace tessera {
namespace {

/// Returns the description of one of a product's matrices. Errors name the product's shape.
auto layout(const CublasLt& library, const GemmShape& shape, const ColumnMajorMatrix& matrix,
            DType dtype) {
  return cublaslt_create<cublasLtMatrixLayout_t, decltype(cublasLtMatrixLayoutCreate),
                         decltype(cublasLtMatrixLayoutDestroy)>(
      library, "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy", describe(shape),
      cublaslt_type(dtype), static_cast<uint64_t>(matrix.rows),
      static_cast<uint64_t>(matrix.columns), matrix.leading);
}

/// Returns the type in which sums are taken: f32. Products of f32 keep all bits of their operands
/// unless `tf32`.
cublasComputeType_t compute_type(const GemmShape& shape, bool tf32) {
  return tf32 && shape.input == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

cudaDataType_t cublaslt_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f32:
      return CUDA_R_32F;
    default:
      throw InternalError(fmt::format("no matrix products of {} on a device", dtype_name(dtype)));
  }
}

std::string describe(const GemmShape& shape) {
  return fmt::format("a product [{}, {}] x [{}, {}] of {} into {}", shape.m, shape.k, shape.k,
                     shape.n, dtype_name(shape.input), dtype_name(shape.output));
}

CublasLtOwned<cublasLtMatmulDesc_t> cublaslt_operation(const CublasLt& library,
                                                       cublasComputeType_t compute,
                                                       bool transpose_a, bool transpose_b,
                                                       const std::string& what) {
  auto operation = cublaslt_create<cublasLtMatmulDesc_t, decltype(cublasLtMatmulDescCreate),
                                   decltype(cublasLtMatmulDescDestroy)>(
      library, "cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy", what, compute, CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const int32_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    library.check(
        library.function<decltype(cublasLtMatmulDescSetAttribute)>(
            "cublasLtMatmulDescSetAttribute")(operation.get(), attribute, &value, sizeof(value)),
        what);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a);
  set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b);
  return operation;
}

CublasLtProduct::CublasLtProduct(const CublasLt& library, const GemmShape& shape, bool tf32)
    : operation_(cublaslt_operation(library, compute_type(shape, tf32),
                                    column_major(shape).a.transpose,
                                    column_major(shape).b.transpose, describe(shape))),
      a_(layout(library, shape, column_major(shape).a, shape.input)),
      b_(layout(library, shape, column_major(shape).b, shape.input)),
      d_(layout(library, shape, column_major(shape).d, shape.output)) {}

CublasLtPreference::CublasLtPreference(const CublasLt& library, int64_t workspace_bytes,
                                       uint32_t alignment)
    : library_(library),
      preference_(
          cublaslt_create<cublasLtMatmulPreference_t, decltype(cublasLtMatmulPreferenceCreate),
                          decltype(cublasLtMatmulPreferenceDestroy)>(
              library, "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy",
              "a preference among algorithms")) {
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // An algorithm may divide k among blocks of threads and then add their sums. The schemes that are
  // left out here add them in the output's type, which may be bf16.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                            CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
}

}  // namespace tessera
