#pragma once

#include <cstdint>

#include "ops/cca/token_order.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments of depthwise_taps(): y[t] = weight[:, 0] x[t - 1] + weight[:, 1] x[t] + bias. The
/// taps of token t are y[t - 1] and y[t]. Before a document's start x is zero, so y is the bias.
template <typename T>
struct DepthwiseForward {
  using Wide = Compute<T>;
  TokenOrder order;
  int64_t tokens;
  int64_t channels;
  const T* x;             // [tokens, channels]
  const T* earlier_rows;  // [2, channels]: before token 0 of a sequence that continues, or null
  const Wide* weight;     // [channels, 2]
  const Wide* bias;       // [channels]
  T* taps;                // [tokens, channels, 2]

  /// Returns the row of x of a token. Tokens -2 and -1 are those before token 0.
  constexpr const T* row(int64_t token) const {
    return token < 0 ? earlier_rows + (token + 2) * channels : x + token * channels;
  }
  /// Returns the number of tokens, of the two before this one, that belong to its document.
  constexpr int earlier_count(int64_t token) const {
    if (!order.continues_document(token)) return 0;
    return order.continues_document(token - 1) ? 2 : 1;
  }
};

/// The arguments of the gradients. depthwise_gradient_plain() (depthwise.cpp) has the formulas.
template <typename T>
struct DepthwiseBackward {
  using Wide = Compute<T>;
  TokenOrder order;
  int64_t tokens;
  int64_t channels;
  const T* x;              // [tokens, channels]
  const Wide* weight;      // [channels, 2]
  const T* taps_gradient;  // [tokens, channels, 2]
  T* x_gradient;           // [tokens, channels]
  Wide* weight_gradient;   // [channels, 2]
  Wide* bias_gradient;     // [channels]
  Wide* parts;             // [token_parts(), 3 channels]: sums for the weight, then for the bias

  /// Returns whether the next token belongs to the same document.
  constexpr bool is_followed(int64_t token) const {
    return token + 1 < tokens && order.continues_document(token + 1);
  }
  /// Returns the number of tokens, of the two after this one, that belong to its document.
  constexpr int later_count(int64_t token) const {
    if (!is_followed(token)) return 0;
    return is_followed(token + 1) ? 2 : 1;
  }
};

// The fast kernels on the processor, for T = float and BFloat16. A gradient is summed in `parts`
// parts (token_parts() of ops/weight_parts.h).
template <typename T>
void depthwise_fast(const DepthwiseForward<T>& depthwise, int threads);
template <typename T>
void depthwise_gradient_fast(const DepthwiseBackward<T>& depthwise, int64_t parts, int threads);

// These functions enqueue the kernels on a device's stream, for the same types.
template <typename Vendor, typename T>
void depthwise_device(const DepthwiseForward<T>& depthwise, Stream& stream);
template <typename Vendor, typename T>
void depthwise_gradient_device(const DepthwiseBackward<T>& depthwise, int64_t parts,
                               Stream& stream);

}  // namespace tessera
