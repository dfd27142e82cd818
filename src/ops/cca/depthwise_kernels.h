#pragma once

#include <cstdint>

#include "ops/cca/token_order.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The depthwise convolution y[t] = weight[:, 0] x[t - 1] + weight[:, 1] x[t] + bias, which writes
/// y[t - 1] and y[t] for each token t. x is zero before a document's start, so y is the bias there.
template <typename T>
struct DepthwiseForward {
  using Wide = Compute<T>;
  TokenOrder order;
  int64_t tokens;
  int64_t channels;
  const T* x;          // [tokens, channels]
  const T* before;     // [2, channels]: of the two tokens before token 0, if one sequence goes on
  const Wide* weight;  // [channels, 2]
  const Wide* bias;    // [channels]
  T* taps;             // [tokens, channels, 2]

  /// The row of a token, from -2 on.
  constexpr const T* row(int64_t token) const {
    return token < 0 ? before + (token + 2) * channels : x + token * channels;
  }
  /// How many of the two tokens before this one are of its document.
  constexpr int reach(int64_t token) const {
    if (!order.follows(token)) return 0;
    return order.follows(token - 1) ? 2 : 1;
  }
};

/// The gradients, with of_y[t] = of_taps[t, :, 1] + of_taps[t + 1, :, 0] if token t + 1 follows:
/// of_x[t] = weight[:, 1] of_y[t] + weight[:, 0] of_y[t + 1] if it follows. The weight's are sums
/// of of_y[t + 1] x[t] and of_y[t] x[t], and the bias's are sums of all of_taps.
template <typename T>
struct DepthwiseBackward {
  using Wide = Compute<T>;
  TokenOrder order;
  int64_t tokens;
  int64_t channels;
  const T* x;          // [tokens, channels]
  const Wide* weight;  // [channels, 2]
  const T* of_taps;    // [tokens, channels, 2]
  T* of_x;             // [tokens, channels]
  Wide* of_weight;     // [channels, 2]
  Wide* of_bias;       // [channels]
  Wide* parts;         // [token_parts(), 3 channels]: of the weight, then of the bias

  constexpr bool is_followed(int64_t token) const {
    return token + 1 < tokens && order.follows(token + 1);
  }
  /// How many of the two tokens after this one are of its document.
  constexpr int ahead(int64_t token) const {
    if (!is_followed(token)) return 0;
    return is_followed(token + 1) ? 2 : 1;
  }
};

/// The fast kernels, for T = float and BFloat16.
template <typename T>
void depthwise_fast(const DepthwiseForward<T>& depthwise, int threads);
template <typename T>
void depthwise_gradient_fast(const DepthwiseBackward<T>& depthwise, int64_t parts, int threads);

/// The kernels of devices, for the same types. They put their work into the stream.
template <typename Vendor, typename T>
void depthwise_device(const DepthwiseForward<T>& depthwise, Stream& stream);
template <typename Vendor, typename T>
void depthwise_gradient_device(const DepthwiseBackward<T>& depthwise, int64_t parts,
                               Stream& stream);

}  // namespace tessera
