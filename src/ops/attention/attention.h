#pragma once

#include <cstdint>
#include <optional>

#include "program/builder.h"

namespace tessera {

/// What the shapes of q, k and v do not say.
struct AttentionOptions {
  int64_t sequence = 0;  ///< tokens of one sequence; tokens = sequences · sequence
  int64_t heads = 0;     ///< of the queries; a multiple of kv_heads
  int64_t kv_heads = 0;  ///< query head h reads key-value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  double scale = 0;            ///< factor on q · k; 0 means 1 / sqrt(head_dim)
  bool document_mask = false;  ///< whether document_starts is given
};

/// Causal attention with grouped-query heads (arXiv 2305.13245): softmax(scale · q kᵀ) v per head,
/// where token i of a sequence attends the tokens j <= i.
///
/// q is [tokens, heads · head_dim], k and v are [tokens, kv_heads · head_dim]; the result is
/// [tokens, heads · head_dim]. With document masks (Llama 3, §3.2) `document_starts`, i32 [tokens],
/// gives the index within the sequence of the first token of the document that the token belongs
/// to, and token i attends document_starts[i] <= j <= i only. The fast kernels work on tiles with a
/// running softmax (FlashAttention-2, arXiv 2307.08691): memory is linear in the sequence, in the
/// backward pass too, which makes the probabilities again from q, k and the logarithm of each
/// softmax's denominator. That is a second output of the operation, [heads, tokens] in the
/// accumulation type, marked Keep::block.
///
/// Throws InternalError when shapes do not fit, or at the run when a document starts after a token
/// of it.
Value attention(Builder& builder, Value q, Value k, Value v, const AttentionOptions& options,
                std::optional<Value> document_starts = std::nullopt);

/// Attention of the newest tokens of one sequence, whose earlier keys and values lie in caches:
/// writes k and v at rows position.. of the caches, then lets token i attend rows 0..position + i.
///
/// q is [tokens, heads · head_dim], k and v are [tokens, kv_heads · head_dim], the caches (states)
/// are [capacity, kv_heads · head_dim], `position`, i32 [1], is the index of the first new token;
/// the result is [tokens, heads · head_dim]. `options.sequence` is not read and there is no
/// document mask. No gradient. Throws InternalError at the run, before anything is written, when
/// position + tokens exceeds the capacity.
Value cached_attention(Builder& builder, Value q, Value k, Value v, Value key_cache,
                       Value value_cache, Value position, const AttentionOptions& options);

}  // namespace tessera
