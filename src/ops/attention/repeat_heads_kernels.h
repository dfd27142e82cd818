#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments that repeat heads (forward) or sum their copies (backward). The copies of a head
/// follow one another.
template <typename T>
struct HeadCopies {
  int64_t heads;  // heads of all tokens
  int64_t head_dim;
  int64_t times;  // copies of each head
  const T* from;  // forward [heads, head_dim], backward [heads, times, head_dim]
  T* to;          // forward [heads, times, head_dim], backward [heads, head_dim]
};

/// Enqueues a kernel that copies heads, or with `sums` adds the copies in f32, for T = float and
/// BFloat16.
template <typename Vendor, typename T>
void repeat_heads_device(const HeadCopies<T>& copies, bool sums, Stream& stream);

}  // namespace tessera
