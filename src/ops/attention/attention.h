#pragma once

#include <cstdint>
#include <optional>

#include "program/builder.h"

namespace tessera {

/// What the shapes of q, k and v do not say.
struct AttentionOptions {
  int64_t sequence = 0;  ///< queries of one sequence; tokens = sequences · sequence
  int64_t keys = 0;      ///< keys of one sequence; 0: as many as queries
  int64_t heads = 0;     ///< of the queries; a multiple of kv_heads
  int64_t kv_heads = 0;  ///< query head h reads key-value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  double scale = 0;  ///< factor on q · k; 0 means 1 / sqrt(head_dim)
};

/// Where tokens stand, where their rows do not say it.
struct AttentionPlaces {
  /// i32 [tokens]: the position of the first token of the document that a query belongs to
  /// (document masks, Llama 3 §3.2).
  std::optional<Value> document_starts = {};
  /// i32 [tokens], ascending in each sequence: the queries' positions, when they are a part of the
  /// keys' tokens (context parallelism).
  std::optional<Value> positions = {};
  /// i32 [sequences · keys], ascending in each sequence: the keys' positions.
  std::optional<Value> key_positions = {};
};

/// Causal attention with grouped-query heads (arXiv 2305.13245): softmax(scale · q kᵀ) v per head,
/// where a query attends the keys of its sequence that stand at its own position or before it.
///
/// q is [tokens, heads · head_dim], k and v are [sequences · keys, kv_heads · head_dim]; the result
/// is [tokens, heads · head_dim]. Rows are positions, from 0 in each sequence, where `places` do
/// not give them. With document starts a query attends the keys from its document's start on only.
/// A query that attends no key gives zeros. The fast kernels work on tiles with a running softmax
/// (FlashAttention-2, arXiv 2307.08691), whose sizes are the target's: memory is linear in the
/// sequence, in the backward pass too, which makes the probabilities again from q, k and the
/// logarithm of each softmax's denominator. That is a second output of the operation, [heads,
/// tokens] in the accumulation type, marked Keep::block.
///
/// Throws InternalError when shapes do not fit, or at the run when positions do not ascend or a
/// document starts after a token of it.
Value attention(Builder& builder, Value q, Value k, Value v, const AttentionOptions& options,
                const AttentionPlaces& places = {});

/// Attention of the newest tokens of one sequence, whose earlier keys and values lie in caches:
/// writes k and v at rows position.. of the caches, then lets token i attend rows 0..position + i.
///
/// q is [tokens, heads · head_dim], k and v are [tokens, kv_heads · head_dim], the caches (states)
/// are [capacity, kv_heads · head_dim], `position`, i32 [1], is the index of the first new token;
/// the result is [tokens, heads · head_dim]. `options.sequence` and `options.keys` are not read. No
/// gradient. Throws InternalError at the run, before anything is written, when position + tokens
/// exceeds the capacity.
Value cached_attention(Builder& builder, Value q, Value k, Value v, Value key_cache,
                       Value value_cache, Value position, const AttentionOptions& options);

}  // namespace tessera
