#pragma once

#include "device/stream.h"
#include "tensor/tensor.h"

namespace tessera {

/// Rounds a contiguous tensor of f32 to bf16 in its own memory, of which it then fills the first
/// half. Returns it there; the other half is undefined. `stream` is that of a device in whose
/// memory the tensor lies, or null.
Tensor narrow_in_place(const Tensor& wide, Stream* stream = nullptr);

/// Puts what narrow_in_place() returned back into the tensor of f32.
void widen_in_place(const Tensor& wide, Stream* stream = nullptr);

}  // namespace tessera
