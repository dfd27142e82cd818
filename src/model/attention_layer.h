#pragma once

#include <optional>

#include "model/model_writer.h"

namespace tessera {

/// The inputs that the attention layers of one program share: the positions of the tokens and what
/// depends on them. They are not split over the tensor axis.
struct AttentionInputs {
  int64_t sequence = 0;                  ///< the number of this rank's tokens of one sequence
  Value positions;                       ///< i32 [tokens]
  std::optional<Value> key_positions;    ///< of the keys of all context ranks, if there are several
  Value rotary_table;                    ///< [tokens, rotated channels]
  std::optional<Value> document_starts;  ///< i32 [tokens]
  std::optional<Value> cache_position;   ///< i32 [1]: where decoding writes into key-value caches
  int64_t capacity = 0;                  ///< for decoding: the rows of each cache
};

/// Returns the number of rotated channels in each head; always even.
int64_t rotary_channels(const ModelConfig& config);

/// Writes self-attention: q, k and v projections, the family's norm of q and k, clipping, rotary
/// embedding, causal attention, output projection. x and the result are [tokens, hidden]. A family
/// with compressed convolutional attention prepares q, k and v by compressed_heads() instead.
///
/// Each rank of the tensor axis has some of the heads. If there are fewer key heads than ranks,
/// each rank computes all keys and takes the head that its queries read. Over the context axis the
/// keys and values of all positions are gathered (Llama 3, section 3.3.2).
///
/// The number of query heads must be a multiple of the ranks, and the number of key heads a
/// multiple or a divisor of them; with compressed attention a multiple. mesh_of() refuses other
/// numbers; here they throw InternalError.
Value attention_layer(ModelWriter& writer, Value x, const AttentionInputs& inputs);

/// The operands of attention, [tokens, heads · head_dim] each, split by heads over the tensor axis.
struct AttentionHeads {
  Value query;
  Value key;
  Value value;
};

/// Returns the heads of compressed convolutional attention, computed from all positions of x,
/// [tokens, hidden] (compressed_attention.cpp).
AttentionHeads compressed_heads(ModelWriter& writer, Value x, const AttentionInputs& inputs);

/// Returns the keys or values of the heads that this rank's queries read, split by heads over the
/// tensor axis. x, [tokens, key heads · head_dim], is the same on all tensor ranks.
Value own_key_heads(ModelWriter& writer, Value x);

}  // namespace tessera
