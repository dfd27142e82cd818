#pragma once

#include "ops/moe/routing.h"

namespace tessera {

// The way of the tokens' vectors to the experts and back. Each token is copied to its routed rows,
// and after the experts have run, the rows of each token are summed. token_indices() says which row
// belongs to which token. Rows past the last offset hold no token and are neither read nor written.

/// Gathers the experts' input (stage 4 of FastSparseMoE). Row r of the result [rows, hidden] is
/// token input_indices[r] of x [tokens, hidden]. In the backward pass each token sums the gradients
/// of its rows in the accumulation type and rounds once, to x's type.
Value gather_tokens(Builder& builder, Value x, const TokenIndices& indices);

/// Computes the weighted sum of the experts' outputs (stage 5 of FastSparseMoE):
///   result_t = Σ_j weights_tj · expert_output[output_indices_tj]
/// expert_output is [rows, hidden], weights are [tokens, k] in its accumulation type, and the
/// result is [tokens, hidden]. The sum is taken in the accumulation type and rounded once. Dropped
/// and remote choices (index -1) add nothing, and the gradient of their weights is zero (algorithm
/// 1, lines 82 to 113).
Value reduce_experts(Builder& builder, Value expert_output, Value weights,
                     const TokenIndices& indices);

}  // namespace tessera
