#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "program/builder.h"

namespace tessera {

/// The sizes and the scale of attention, which the shapes of q, k and v do not give.
struct AttentionOptions {
  int64_t sequence = 0;  ///< queries of one sequence; tokens = sequences · sequence
  int64_t keys = 0;      ///< keys of one sequence; 0 means as many as queries
  int64_t heads = 0;     ///< query heads; a multiple of kv_heads
  int64_t kv_heads = 0;  ///< query head h reads key-value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  double scale = 0;  ///< factor on q · k; 0 means 1 / sqrt(head_dim)
};

/// The positions and documents of tokens, where their row indices do not give them.
struct AttentionPositions {
  /// i32 [tokens]: for each query, the position of the first token of its document (document masks,
  /// Llama 3 §3.2).
  std::optional<Value> document_starts = {};
  /// i32 [tokens], ascending in each sequence: the positions of the queries, if these are only a
  /// part of the keys' tokens (context parallelism).
  std::optional<Value> queries = {};
  /// i32 [sequences · keys], ascending in each sequence: the positions of the keys.
  std::optional<Value> keys = {};
};

/// Returns causal attention with grouped-query heads (arXiv 2305.13245): softmax(scale · q kᵀ) v
/// per head. A query attends to the keys of its sequence at its own position or before it.
///
/// q is [tokens, heads · head_dim]. k and v are [sequences · keys, kv_heads · head_dim]. The result
/// is [tokens, heads · head_dim]. A row's position is its index in its sequence, unless `positions`
/// gives another. With document starts, a query attends only to keys at or after the start of its
/// document. The result of a query that attends to no key is zeros.
///
/// The fast kernels work on tiles with a running softmax (FlashAttention-2, arXiv 2307.08691). The
/// target determines the size of the tiles. Memory is linear in the sequence length, also in the
/// backward pass, which computes the probabilities again from q, k and the log-sum-exp of each
/// query's scores. The operation's second output, marked Keep::block, has these log-sum-exps:
/// [sequences, heads, sequence] in the accumulation type.
///
/// Throws InternalError if the shapes do not fit. A run on the processor throws InternalError if
/// positions do not ascend, or if a document starts after one of its tokens or before the previous
/// token's document. GPUs do not check this.
Value attention(Builder& builder, Value q, Value k, Value v, const AttentionOptions& options,
                const AttentionPositions& positions = {});

/// Attention to a part of the keys. Let L be the log-sum-exp of the part's scores, and M that of
/// all scores. The attention to all keys is the sum over the parts of exp(L - M) · output.
struct AttentionPart {
  Value output;       ///< [tokens, heads · head_dim]
  Value log_sum_exp;  ///< [sequences, heads, sequence] in the accumulation type; -inf: no key
};
/// Returns attention() of queries to a part of their keys, for ring attention.
AttentionPart attention_part(Builder& builder, Value q, Value k, Value v,
                             const AttentionOptions& options, const AttentionPositions& positions);

/// Returns the contributions of a part of the keys to the gradients of q, k and v. `whole` is the
/// attention to all keys, and `output_gradient` the gradient of its output.
std::array<Value, 3> attention_part_gradient(Builder& builder, Value q, Value k, Value v,
                                             const AttentionPart& whole, Value output_gradient,
                                             const AttentionOptions& options,
                                             const AttentionPositions& positions);

/// Returns attention of one sequence's newest tokens. Caches have the earlier keys and values;
/// first k and v are added from row `position` on. Then token i attends to rows 0 to position + i.
///
/// q is [tokens, heads · head_dim]. k and v are [tokens, kv_heads · head_dim]. The caches (states)
/// are [capacity, kv_heads · head_dim]. `position`, i32 [1], is the index of the first new token.
/// The result is [tokens, heads · head_dim]. `options.sequence` is not read, and `options.keys`
/// must be 0 or the number of tokens. There is no gradient. A run throws InternalError, before
/// anything is written, if the position is negative or position + tokens exceeds the capacity; a
/// device leaves out the rows that do not fit.
Value cached_attention(Builder& builder, Value q, Value k, Value v, Value key_cache,
                       Value value_cache, Value position, const AttentionOptions& options);

}  // namespace tessera
