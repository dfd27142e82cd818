#pragma once

#include <optional>

#include "model/model_writer.h"

namespace tessera {

/// What the attention layers of one program share: the positions of the tokens, as each rank of the
/// tensor axis has them.
struct AttentionPlace {
  int64_t sequence = 0;                  ///< tokens of one sequence
  Value positions;                       ///< i32 [tokens]
  std::optional<Value> key_positions;    ///< of the keys of all context ranks, if there are several
  Value rotary_table;                    ///< [tokens, rotated channels]
  std::optional<Value> document_starts;  ///< i32 [tokens]
  std::optional<Value> cache_position;   ///< i32 [1]: decoding with caches of `capacity` rows
  int64_t capacity = 0;
};

/// The number of rotated channels in each head; always even.
int64_t rotary_channels(const ModelConfig& config);

/// Writes self-attention: q, k and v projections, the family's norm of q and k, clipping, rotary
/// embedding, causal attention, output projection. x and the result are [tokens, hidden].
///
/// The ranks of the tensor axis each have some heads. If there are fewer key heads than ranks, each
/// rank computes all keys and takes the head that its queries read. Over the context axis the keys
/// and values of all positions are gathered (Llama 3, section 3.3.2). Heads divide over the ranks,
/// and key heads over the ranks or the ranks over them: mesh_of() has refused others, and here they
/// throw InternalError.
Value attention_layer(ModelWriter& writer, Value x, const AttentionPlace& place);

}  // namespace tessera
