#pragma once

#include "ops/gemm/gemm.h"
#include "program/operation.h"

namespace tessera {

/// Puts a matrix product into an execution's stream. The operands lie in the accelerator's memory.
/// The emulated device multiplies with the processor's products. `workspace` has the bytes that
/// device_gemm_workspace_bytes() plans.
void device_gemm(const Execution& execution, const GemmShape& shape, const void* a, const void* b,
                 void* c, std::byte* workspace);

/// Returns the scratch bytes for one product on an accelerator, a pure function.
int64_t device_gemm_workspace_bytes(const Target& target, const GemmShape& shape);

}  // namespace tessera
