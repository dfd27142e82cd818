#pragma once

#include <cstdint>

#include "ops/cca/token_order.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments of joined[t] = (current[t], delayed[t - 1]), where delayed[t - 1] is zero at a
/// document's start. For the gradient the rows are gradients: `joined` is read, `current` and
/// `delayed` are written, and `delayed` is zero for the last token of a document.
template <typename T>
struct DelayedRows {
  TokenOrder order;
  int64_t tokens;
  int64_t current_width;
  int64_t delayed_width;
  T* current;       // [tokens, current_width]
  T* delayed;       // [tokens, delayed_width]
  T* joined;        // [tokens, current_width + delayed_width]
  const T* before;  // [delayed_width]: row before token 0 of a sequence that continues, or null
};

// These functions enqueue the kernels on a device's stream, for T = float and BFloat16.
template <typename Vendor, typename T>
void join_delayed_device(const DelayedRows<T>& delay, Stream& stream);
template <typename Vendor, typename T>
void join_delayed_gradient_device(const DelayedRows<T>& delay, Stream& stream);

}  // namespace tessera
