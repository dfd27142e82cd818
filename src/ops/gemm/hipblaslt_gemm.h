#pragma once

#include <string_view>

#include "ops/gemm/device_gemm.h"

namespace tessera {

// Matrix products on the device hip, for device_gemm.h and for grouped products in bf16. Both need
// hipBLASLt, AMD's counterpart of cuBLASLt. This version does not call hipBLASLt yet, so each of
// these functions throws Error, which says what is missing.

[[noreturn]] void hipblaslt_gemm(const Execution& execution, const GemmShape& shape, const void* a,
                                 const void* b, void* c, std::byte* workspace);
[[noreturn]] void require_hipblaslt(Runtime& runtime);
/// Throws Error for grouped products. `operation` is the name of the operation.
[[noreturn]] void require_hipblaslt_groups(std::string_view operation);

}  // namespace tessera
