#pragma once

#include "ops/cca/sequences.h"
#include "program/builder.h"

namespace tessera {

/// Returns the first convolution of compressed convolutional attention (ZAYA1, appendix C;
/// Figliolia et al., arXiv 2510.04476): causal, depthwise, with two taps,
///   y[t] = weight[:, 0] x[t - 1] + weight[:, 1] x[t] + bias.
///
/// The convolution that follows (ops/cca/grouped_convolution.h) reads y[t - 1] and y[t], the taps,
/// for each token t. So the result is [tokens, 2 · channels], with both taps of a channel side by
/// side. x counts as zero before each document, so y is the bias there.
///
/// x is [tokens, channels]. weight is [channels, 2] and bias [channels], in x's accumulation type.
/// Sums are taken in that type, and each element is rounded once. The backward pass computes the
/// result again rather than keep it, because it is twice as large as x, which is kept anyhow.
/// Throws InternalError if the shapes or types do not fit.
Value depthwise_taps(Builder& builder, Value x, Value weight, Value bias,
                     const SequenceOptions& options);

/// Returns depthwise_taps() of the next tokens of one sequence. `position`, i32 [1], is that of the
/// first new token in the sequence. `last_rows` (state), [2, channels] in x's type, holds the rows
/// of x of the two tokens before it, the latest last. A row before the sequence's start is not
/// read. Afterwards it holds the rows of the sequence's last two tokens. There is no gradient.
Value cached_depthwise_taps(Builder& builder, Value x, Value weight, Value bias, Value last_rows,
                            Value position);

}  // namespace tessera
