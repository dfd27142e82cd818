#pragma once

#include "ops/moe/routing.h"

namespace tessera {

/// Computes the weighted sum of the experts' outputs (stage 5 of FastSparseMoE). expert_output is
/// [rows, hidden], weights are [tokens, k] in its accumulation type, and the result is [tokens,
/// hidden]. It is Σ_j weights_tj · expert_output[output_indices_tj], taken in the accumulation type
/// and rounded once. Dropped and remote choices add nothing, and the gradient of their weights is
/// zero (algorithm 1, lines 82 to 113). Rows without a choice get no gradient: their rows of
/// expert_output's gradient are not written.
Value reduce_experts(Builder& builder, Value expert_output, Value weights,
                     const TokenIndices& indices);

}  // namespace tessera
