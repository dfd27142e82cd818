#pragma once

#include <string_view>

#include "ops/gemm/device_gemm.h"

namespace tessera {

// The device hip's side of device_gemm.h and of products of groups in bf16: hipBLASLt's, AMD's
// counterpart of cuBLASLt. This version does not call it. Until it does, each of these throws
// Error, which says what is missing.

[[noreturn]] void hipblaslt_gemm(const Execution& execution, const GemmShape& shape, const void* a,
                                 const void* b, void* c, std::byte* workspace);
[[noreturn]] void require_hipblaslt(Runtime& runtime);
/// `operation` names the operation.
[[noreturn]] void require_hipblaslt_groups(std::string_view operation);

}  // namespace tessera
