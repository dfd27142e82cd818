#pragma once

#include "ops/cca/sequences.h"
#include "program/builder.h"

namespace tessera {

/// Returns the first convolution of compressed convolutional attention (ZAYA1, appendix C;
/// Figliolia et al., arXiv 2510.04476): causal, depthwise, with two taps,
///   y[t] = weight[:, 0] x[t - 1] + weight[:, 1] x[t] + bias.
///
/// The convolution that follows reads y[t - 1] and y[t] for each token t
/// (ops/cca/grouped_convolution.h). So the result is [tokens, 2 · channels]: the taps y[t - 1] and
/// y[t] of a channel side by side. x is padded with two zeros before each document, and y is not.
/// So y before a document's start is the bias.
///
/// x is [tokens, channels]. weight is [channels, 2] and bias [channels], in x's accumulation type.
/// Sums are taken in that type, and each element is rounded once. The backward pass computes the
/// result again rather than keep it, because it is twice as large as x, which is kept anyhow.
/// Throws InternalError if the shapes or types do not fit.
Value depthwise_taps(Builder& builder, Value x, Value weight, Value bias,
                     const SequenceOptions& options);

/// Returns depthwise_taps() of the next tokens of one sequence. `last_rows` (state), [2, channels]
/// in x's type, holds the rows of x of the two tokens before these tokens, the latest last. A row
/// before the sequence's start is not read. Then the rows of the last two tokens replace them.
/// `position`, i32 [1], is the position of the first new token in the sequence. There is no
/// gradient.
Value cached_depthwise_taps(Builder& builder, Value x, Value weight, Value bias, Value last_rows,
                            Value position);

}  // namespace tessera
