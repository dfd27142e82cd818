#pragma once

#include <span>

#include "program/operation.h"

namespace tessera {

// Newton-Schulz on an accelerator, of bf16 or f32: matrix by matrix, with the library's full
// products. Only the norms of all matrices are taken together.

/// Returns the bytes of workspace for matrices of these specs.
int64_t newton_schulz_device_bytes(const Target& target, std::span<const Spec> matrices);

/// Puts the steps into the execution's stream.
void newton_schulz_on_device(const Execution& execution, int64_t steps);

}  // namespace tessera
