#include "ops/gemm/hipblaslt_gemm.h"

#include "base/error.h"

// Calls of hipBLASLt belong in this file. It needs the same as cublaslt_gemm_cuda.cpp: the library,
// loaded when it is first needed (device/shared_library.h), descriptions of a shape by columns
// (ops/gemm/column_major.h), the choice of an algorithm that sums in f32, and the call. The
// stream's handle() is a hipStream_t, and plans have the scratch memory already. The build for
// AMD's GPUs then needs hipBLASLt's headers, and this file the name hipblaslt_gemm_hip.cpp.

namespace tessera {
namespace {

constexpr std::string_view kMissing =
    "they are hipBLASLt's, AMD's library, which this version does not call yet, neither in bf16 "
    "nor in f32; compute on another device";

}  // namespace

void hipblaslt_gemm(const Execution& execution, const GemmShape&, const void*, const void*, void*,
                    std::byte*) {
  require_hipblaslt(execution.runtime);
}

void require_hipblaslt(Runtime&) {
  throw Error("there are no matrix products on the device \"hip\": {}", kMissing);
}

void require_hipblaslt_groups(std::string_view operation) {
  throw Error("{}: there are no products of experts in bf16 on the device \"hip\": {}", operation,
              kMissing);
}

}  // namespace tessera
