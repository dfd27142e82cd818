#pragma once

#include <optional>

#include "model/model_writer.h"

namespace tessera {

/// The inputs that the attention layers of one program share: the positions of the tokens and what
/// depends on them. They are not split over the tensor axis.
struct AttentionInputs {
  int64_t sequence = 0;                  ///< the number of tokens of one sequence
  Value positions;                       ///< i32 [tokens]
  std::optional<Value> key_positions;    ///< of all context ranks' keys, if there are several
  Value rotary_table;                    ///< [tokens, rotated channels]
  std::optional<Value> document_starts;  ///< i32 [tokens]
  std::optional<Value> cache_position;   ///< i32 [1]: decoding with caches of `capacity` rows
  int64_t capacity = 0;
};

/// The operands of attention, [tokens, heads · head_dim] each, split by heads over the tensor axis.
struct AttentionHeads {
  Value query;
  Value key;
  Value value;
};

/// Returns the keys or values of the heads that this rank's queries read, split by heads over the
/// tensor axis. x, [tokens, key heads · head_dim], is the same on all tensor ranks.
Value take_own_heads(ModelWriter& writer, Value x);

/// Writes causal attention and the projection back to the residual stream. The attention is over
/// whole sequences, whose keys and values are gathered over the context axis (Llama 3, section
/// 3.3.2), or over one sequence with caches, if `inputs` has a cache position. Returns [tokens,
/// hidden], whose positions the tensor axis splits.
Value attend(ModelWriter& writer, const AttentionHeads& heads, const AttentionInputs& inputs);

}  // namespace tessera
