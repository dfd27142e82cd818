#pragma once

#include "ops/router/router.h"

namespace tessera {

/// Adds the tokens that skip the experts. A router may have classes besides the experts: the
/// indices from `experts` on. A token that chooses one of them gets its own input x, times its
/// weight:
///   result[t] = output[t] + Σ_j [indices[t, j] ≥ experts] weights[t, j] x[t]
/// output and x are [tokens, hidden] of one floating type. The selection's weights and indices are
/// [tokens, k]. Each element is rounded once. Throws InternalError if the shapes or types do not
/// fit.
Value add_skipped(Builder& builder, Value output, Value x, const RouterSelection& selection,
                  int64_t experts);

}  // namespace tessera
