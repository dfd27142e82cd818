#pragma once

#include <cstdint>

#include "ops/cca/token_order.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// Rows joined of a token's own columns and of delayed ones: those of the token before, zeros at a
/// document's start. The gradient goes the other way.
template <typename T>
struct DelayForward {
  TokenOrder order;
  int64_t tokens;
  int64_t current_width;
  int64_t delayed_width;
  const T* current;  // [tokens, current_width]
  const T* delayed;  // [tokens, delayed_width]
  const T* before;   // [delayed_width]: of the token before token 0, if one sequence goes on
  T* joined;         // [tokens, current_width + delayed_width]
};

template <typename T>
struct DelayBackward {
  TokenOrder order;
  int64_t tokens;
  int64_t current_width;
  int64_t delayed_width;
  const T* of_joined;  // [tokens, current_width + delayed_width]
  T* of_current;       // [tokens, current_width]
  T* of_delayed;       // [tokens, delayed_width]
};

/// The kernels of devices, for T = float and BFloat16. They put their work into the stream.
template <typename Vendor, typename T>
void join_delayed_device(const DelayForward<T>& delay, Stream& stream);
template <typename Vendor, typename T>
void join_delayed_gradient_device(const DelayBackward<T>& delay, Stream& stream);

}  // namespace tessera
