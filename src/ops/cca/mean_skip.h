#pragma once

#include "program/builder.h"

namespace tessera {

/// A pair of values: one for the queries and one for the keys of attention.
struct QueryAndKey {
  Value query;
  Value key;
};

/// The options of mean_skip_norm().
struct MeanSkipOptions {
  int64_t head_dim = 0;
  double epsilon = 1e-12;  ///< added to the square of a head's norm
};

/// Returns queries and keys after the skip and the norm of compressed convolutional attention
/// (ZAYA1, appendix C), in one pass. q0 and k0 are the projections before the convolutions, and z
/// is the result of the convolutions. A key head has g query heads.
///
/// - mq[i] = (q0[i] + k0[i / g]) / 2 for each query head i; mk[j] is the mean of mq over the query
///   heads of key head j.
/// - s = z + bias + m, where m is mq for queries and mk for keys. The bias is the second
///   convolution's.
/// - q = √head_dim s / ‖s‖ per head, and k = temperature[j] √head_dim s / ‖s‖, where
///   ‖s‖ = √(Σ s² + epsilon).
///
/// `projected` (q0, k0) and `convolved` (z) are [tokens, heads · head_dim] for queries and [tokens,
/// key heads · head_dim] for keys, all of one floating type; so are the results. The biases are
/// [heads · head_dim] and [key heads · head_dim], and the temperature [key heads], in the
/// accumulation type. Everything is computed in that type, and each result is rounded once. Ranks
/// split key heads, each with its query heads.
///
/// Throws InternalError if the shapes or types do not fit. The backward pass throws it if only one
/// of the results has a gradient. A plan for a device throws it if heads have more than 256
/// channels, or if a key head and its query heads together have more than 12,287.
QueryAndKey mean_skip_norm(Builder& builder, const QueryAndKey& projected,
                           const QueryAndKey& convolved, const QueryAndKey& bias, Value temperature,
                           const MeanSkipOptions& options);

}  // namespace tessera
