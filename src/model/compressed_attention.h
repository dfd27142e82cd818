#pragma once

#include "model/attend.h"

namespace tessera {

/// Writes compressed convolutional attention (ZAYA1, section IV-A and appendix C). Queries and keys
/// narrower than the stream go through two causal convolutions, and a mean of both from before the
/// convolutions is added. Each head is normalised, keys with a temperature, and partly rotated.
/// Half of the value columns come from the previous token. Grouped-query attention and the output
/// projection follow. x and the result are [tokens, hidden].
///
/// The ranks of the tensor axis split the key heads, each with its query heads. Each rank computes
/// all values and takes those of its heads. While decoding, a layer's states are the last two rows
/// of queries and keys before the convolutions and the last row of delayed values, beside the
/// caches of keys and values. The ranks of the context axis gather queries, keys and values, which
/// are narrow, and each applies the convolutions to whole sequences.
Value compressed_attention(ModelWriter& writer, Value x, const AttentionInputs& inputs);

}  // namespace tessera
