#pragma once

#include "ops/attention/attention_plain.h"

namespace tessera {

/// Computes attention over caches: row by row for a few tokens, in tiles for many. T is float or
/// BFloat16. `workspace` has the size that cached_attention_fast_workspace() returns.
template <typename T>
void cached_attention_fast(Runtime& runtime, const AttentionShape& shape,
                           const CachedAttentionOperands<T>& operands, std::byte* workspace);
int64_t cached_attention_fast_workspace(const Target& target, const AttentionShape& shape,
                                        DType dtype, int64_t capacity);

}  // namespace tessera
