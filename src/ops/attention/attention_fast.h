#pragma once

#include "ops/attention/attention_plain.h"

namespace tessera {

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

}  // namespace tessera
