#pragma once

#include "model/attend.h"

namespace tessera {

/// Returns the number of rotated channels in each head; always even.
int64_t rotary_channels(const ModelConfig& config);

/// Writes self-attention: q, k and v projections, the family's norm of q and k, clipping, rotary
/// embedding, causal attention, output projection. x and the result are [tokens, hidden]. A family
/// with compressed convolutional attention computes its heads in another way
/// (model/compressed_attention.h).
///
/// The ranks of the tensor axis each have some heads. If there are fewer key heads than ranks, each
/// rank computes all keys and takes the head that its queries read. Over the context axis the keys
/// and values of all positions are gathered (Llama 3, section 3.3.2). Query heads must divide over
/// the ranks, and key heads over the ranks or the ranks over key heads. mesh_of() refuses other
/// numbers; here they throw InternalError.
Value attention_layer(ModelWriter& writer, Value x, const AttentionInputs& inputs);

}  // namespace tessera
