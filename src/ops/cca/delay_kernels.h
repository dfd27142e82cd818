#pragma once

#include <cstdint>

#include "ops/cca/token_order.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments of joined[t] = (current[t], delayed[t - 1]), where delayed[t - 1] is zero at a
/// document's start.
template <typename T>
struct DelayForward {
  TokenOrder order;
  int64_t tokens;
  int64_t current_width;
  int64_t delayed_width;
  const T* current;  // [tokens, current_width]
  const T* delayed;  // [tokens, delayed_width]
  const T* before;   // [delayed_width]: row before token 0 of a sequence that continues, or null
  T* joined;         // [tokens, current_width + delayed_width]
};

/// The arguments of the gradient of join_delayed(): joined_gradient[t] = (current_gradient[t],
/// delayed_gradient[t - 1]). delayed_gradient is zero for the last token of a document.
template <typename T>
struct DelayBackward {
  TokenOrder order;
  int64_t tokens;
  int64_t current_width;
  int64_t delayed_width;
  const T* joined_gradient;  // [tokens, current_width + delayed_width]
  T* current_gradient;       // [tokens, current_width]
  T* delayed_gradient;       // [tokens, delayed_width]
};

// These functions enqueue the kernels on a device's stream, for T = float and BFloat16.
template <typename Vendor, typename T>
void join_delayed_device(const DelayForward<T>& delay, Stream& stream);
template <typename Vendor, typename T>
void join_delayed_gradient_device(const DelayBackward<T>& delay, Stream& stream);

}  // namespace tessera
