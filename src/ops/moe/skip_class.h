#pragma once

#include "ops/router/router.h"

namespace tessera {

/// Adds the tokens that skip the experts to the experts' output. A router may have classes besides
/// the experts: the indices from `experts` on. For such a choice a token gets its own input x,
/// times the weight of the choice. [condition] is 1 if it holds, else 0:
///   result[t] = output[t] + Σ_j [indices[t, j] ≥ experts] weights[t, j] x[t]
/// output and x are [tokens, hidden] of one floating type. The selection's weights and indices are
/// [tokens, k]. Each element is rounded once. Throws InternalError if shapes or types do not fit.
Value add_skipped(Builder& builder, Value output, Value x, const RouterSelection& selection,
                  int64_t experts);

}  // namespace tessera
