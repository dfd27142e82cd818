#pragma once

#include "ops/router/router.h"

namespace tessera {

/// Adds to each token of `output` the token of x times the weight of the skip class, if the token
/// chose that: output[t] + Σ_j [indices[t, j] ≥ experts] weights[t, j] x[t]. output and x are
/// [tokens, hidden] of one floating type. weights and indices are [tokens, k], of a router's
/// selection. Each element is rounded once. Throws InternalError if the shapes or types do not fit.
Value add_skipped(Builder& builder, Value output, Value x, const RouterSelection& selection,
                  int64_t experts);

}  // namespace tessera
