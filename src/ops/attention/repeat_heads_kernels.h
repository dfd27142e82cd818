#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// Heads of tokens, and the same with each head repeated: a head's copies follow one another.
template <typename T>
struct HeadCopies {
  int64_t heads;  // of all tokens
  int64_t head_dim;
  int64_t times;
  const T* from;  // forward [heads, head_dim], backward [heads, times, head_dim]
  T* to;          // the other one
};

/// The kernels of devices, for T = float and BFloat16: they copy heads, or add the copies in f32.
template <typename Vendor, typename T>
void repeat_heads_device(const HeadCopies<T>& copies, Stream& stream);
template <typename Vendor, typename T>
void add_head_copies_device(const HeadCopies<T>& copies, Stream& stream);

}  // namespace tessera
