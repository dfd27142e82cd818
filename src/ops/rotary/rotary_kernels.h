#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments of one rotation. output may be x's memory.
template <typename T>
struct RotaryArguments {
  using Wide = Compute<T>;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t channels;   // rotated channels of each head
  bool inverse;       // true for the inverse rotation
  const T* x;         // [tokens, heads, head_dim]
  const Wide* table;  // [tokens, channels]: cosines, then sines
  T* output;          // [tokens, heads, head_dim]
};

/// Rotates with the fast kernel, for T = float and BFloat16.
template <typename T>
void rotary_fast(const RotaryArguments<T>& rotary, int threads);

/// Rotates on a device, for the same types. Puts its work into the stream. All arrays begin on 64
/// bytes.
template <typename Vendor, typename T>
void rotary_device(const RotaryArguments<T>& rotary, Stream& stream);

}  // namespace tessera
