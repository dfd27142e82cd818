#pragma once

#include "ops/attention/attention_plain.h"

namespace tessera {

// The fast kernels of attention on the processor, in the manner of FlashAttention-2 (arXiv
// 2307.08691). They never store all scores: they multiply tiles, some queries by some keys, with
// matrix products, and keep a running softmax for each query.

/// Computes attention in tiles. T is float or BFloat16. `workspace` has the size that
/// attention_fast_workspace() returns.
template <typename T>
void attention_fast(Runtime& runtime, const AttentionShape& shape, const T* q, const T* k,
                    const T* v, const KeyRanges& ranges, T* output, float* log_sum_exp,
                    std::byte* workspace);
int64_t attention_fast_workspace(const Target& target, const AttentionShape& shape, DType dtype);

/// Computes the gradients of attention in tiles. `workspace` has the size that
/// attention_gradient_fast_workspace() returns.
template <typename T>
void attention_gradient_fast(Runtime& runtime, const AttentionShape& shape,
                             const AttentionGradientOperands<T>& operands, std::byte* workspace);
int64_t attention_gradient_fast_workspace(const Target& target, const AttentionShape& shape,
                                          DType dtype);

/// Computes attention over caches: row by row for a few tokens, in tiles for many. T is float or
/// BFloat16. `workspace` has the size that cached_attention_fast_workspace() returns.
template <typename T>
void cached_attention_fast(Runtime& runtime, const AttentionShape& shape,
                           const CachedAttentionOperands<T>& operands, std::byte* workspace);
int64_t cached_attention_fast_workspace(const Target& target, const AttentionShape& shape,
                                        DType dtype, int64_t capacity);

}  // namespace tessera
