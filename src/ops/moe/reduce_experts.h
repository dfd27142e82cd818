#pragma once

#include "ops/moe/routing.h"

namespace tessera {

/// The weighted sum of the experts' outputs (stage 5 of FastSparseMoE): expert_output
/// [rows, hidden] and weights [tokens, k] (of its accumulation type) give [tokens, hidden],
/// Σ_j weights_tj · expert_output[output_indices_tj], taken in the accumulation type and rounded
/// once. Dropped and remote choices count nothing and their weights' gradient is zero; so is the
/// gradient of unused rows (algorithm 1, lines 82 to 113).
Value reduce_experts(Builder& builder, Value expert_output, Value weights,
                     const TokenIndices& indices);

}  // namespace tessera
