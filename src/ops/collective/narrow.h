#pragma once

#include "comm/wire_format.h"
#include "device/stream.h"
#include "tensor/tensor.h"

namespace tessera {

// Sums of f32 may be sent between ranks as bf16, which halves the bytes (comm/wire_format.h). The
// elements are converted in their own memory.

/// Returns the type in which elements of type `dtype` are sent: bf16 for f32 if the wire format is
/// bf16, otherwise the type itself.
inline DType wire_dtype(WireFormat wire, DType dtype) {
  return wire == WireFormat::bf16 && dtype == DType::f32 ? DType::bf16 : dtype;
}

/// Rounds a contiguous tensor of f32 to bf16 in its own memory. Returns the bf16 elements as one
/// dim, in the first half of the memory. The other half is undefined. `stream` is a stream of the
/// device whose memory holds the tensor; null stands for the processor.
Tensor narrow_in_place(const Tensor& wide, Stream* stream = nullptr);

/// Converts the result of narrow_in_place() back, into the tensor of f32.
void widen_in_place(const Tensor& wide, Stream* stream = nullptr);

}  // namespace tessera
