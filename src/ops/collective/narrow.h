#pragma once

#include "tensor/tensor.h"

namespace tessera {

/// Rounds a contiguous tensor of f32 to bf16 in its own memory, of which it then fills the first
/// half. Returns it there; the other half is undefined.
Tensor narrow_in_place(const Tensor& wide);

/// Puts what narrow_in_place() returned back into the tensor of f32.
void widen_in_place(const Tensor& wide);

}  // namespace tessera
