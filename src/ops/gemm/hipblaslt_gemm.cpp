#include "ops/gemm/device_gemm.h"

// The place for calls of hipBLASLt, which will need the steps of cublaslt_gemm_cuda.cpp: load the
// library at its first use (device/shared_library.h), describe a shape by columns (column_major.h),
// choose an algorithm that sums in f32, and call it. The stream's handle() is a hipStream_t. The
// build will need hipBLASLt's headers, and this file the name hipblaslt_gemm_hip.cpp.

namespace tessera {
namespace {

constexpr std::string_view kMissing =
    "they are hipBLASLt's, AMD's library, which this version does not call yet, neither in bf16 "
    "nor in f32; compute on another device";

}  // namespace

void require_hipblaslt(Runtime&) {
  throw Error("there are no matrix products on the device \"hip\": {}", kMissing);
}

void require_hipblaslt_groups(std::string_view operation) {
  throw Error("{}: there are no products of experts in bf16 on the device \"hip\": {}", operation,
              kMissing);
}

}  // namespace tessera
