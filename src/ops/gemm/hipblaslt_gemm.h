#pragma once

#include "ops/gemm/device_gemm.h"

namespace tessera {

/// The device hip's side of device_gemm.h. Throws Error: it waits for hipBLASLt.
void hipblaslt_gemm(const Execution& execution, const GemmShape& shape, const void* a,
                    const void* b, void* c, std::byte* workspace);

}  // namespace tessera
