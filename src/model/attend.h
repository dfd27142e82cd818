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

/// What attention works on, [tokens, heads · head_dim] each, split by heads over the tensor axis.
struct AttentionHeads {
  Value query;
  Value key;
  Value value;
};

/// Keys or values that every rank has, [tokens, key heads · head_dim]: takes those of the heads
/// that its queries read, split by heads over the tensor axis.
Value take_own_heads(ModelWriter& writer, Value x);

/// Writes causal attention: of whole sequences, whose keys and values are gathered over the context
/// axis (Llama 3, section 3.3.2), or of one sequence with caches, if the place has a cache
/// position. Then the projection back to the residual stream, whose positions the tensor axis
/// splits. Returns [tokens, hidden].
Value attend(ModelWriter& writer, const AttentionHeads& heads, const AttentionPlace& place);

}  // namespace tessera
