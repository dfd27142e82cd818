#pragma once

#include "program/builder.h"

namespace tessera {

/// A pair of values: one for the queries and one for the keys of attention.
struct QueryAndKey {
  Value query;
  Value key;
};

struct MeanSkipOptions {
  int64_t head_dim = 0;
  double epsilon = 1e-12;  ///< added to the square of a head's norm
};

/// Returns queries and keys after the skip and the norm of compressed convolutional attention
/// (ZAYA1, appendix C), in one pass. With q0 and k0 the projections before the convolutions, z the
/// result of the convolutions, and g query heads for each key head:
///
/// - mq[i] = (q0[i] + k0[i / g]) / 2 for each query head i; mk[j] is the mean of mq over the query
///   heads of key head j.
/// - s = z + bias + m, where m is mq for queries and mk for keys. The bias is that of the second
///   convolution, which is added here.
/// - q = √head_dim s / ‖s‖ per head, and k = temperature[j] √head_dim s / ‖s‖, where
///   ‖s‖ = √(Σ s² + epsilon).
///
/// `projected` (q0, k0) and `convolved` (z) are [tokens, heads · head_dim] for queries and [tokens,
/// key heads · head_dim] for keys, all of one floating type; so are the results. The biases are
/// [heads · head_dim] and [key heads · head_dim], and the temperature [key heads], in the
/// accumulation type, in which everything is computed. Each result is rounded once. Ranks split key
/// heads, each with its query heads.
///
/// Throws InternalError if the shapes or types do not fit, in the backward pass if only one of the
/// results has a gradient, and in plans of a device if heads have more than 256 channels, or a key
/// head and its query heads more than 12,287 channels together.
QueryAndKey mean_skip_norm(Builder& builder, const QueryAndKey& projected,
                           const QueryAndKey& convolved, const QueryAndKey& bias, Value temperature,
                           const MeanSkipOptions& options);

}  // namespace tessera
