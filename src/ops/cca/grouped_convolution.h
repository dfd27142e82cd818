#pragma once

#include "program/builder.h"

namespace tessera {

/// Returns the second convolution of compressed convolutional attention (ZAYA1, appendix C):
/// causal, one group per head, with two taps. For each head, z[t] = weight[:, :, 0] y[t - 1] +
/// weight[:, :, 1] y[t], where y is the first convolution's result. mean_skip_norm() adds the bias.
///
/// taps is the result of depthwise_taps(), [tokens, heads · inputs · 2]: y[t - 1] and y[t] of each
/// channel. weight is [heads · outputs, inputs, 2] in the same type, Hugging Face's layout. The
/// result is [tokens, heads · outputs], one matrix product per head with sums in the accumulation
/// type. The start of a document needs no special case here: the taps have handled it.
/// Throws InternalError if the shapes or types do not fit.
Value grouped_convolution(Builder& builder, Value taps, Value weight, int64_t heads);

}  // namespace tessera
