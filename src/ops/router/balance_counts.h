#pragma once

#include "program/builder.h"

namespace tessera {

// The counts of a load-balance loss whose tokens are not those of one micro-batch of all ranks.
// Neither has a gradient.

/// Counts the choices of each expert in sets of tokens: i32 [sets, experts], from indices i32
/// [tokens, k]. Equal runs of tokens, the outer factor of dim 0, make the sets; a rank has `sets`
/// of them. What splits the outer factor (the levels of the data axis) splits the sets, and the
/// counts are summed over the ranks that split the inner one (tensor and context). An index outside
/// [0, experts) chooses no expert.
Value set_counts(Builder& builder, Value indices, int64_t experts, int64_t sets = 1);

/// The mean of the counts of all micro-batches of a step so far: f64 [experts]. `sum` is the state
/// f64 [experts] to which the counts of each were added, `counts` i32 [experts] those of this one,
/// which it has already. With c the counts, s the sum and N = Σ_e c_e the choices of a micro-batch,
/// the mean is s_e N / Σ_e s_e; in the first micro-batch it is c_e exactly.
Value step_counts(Builder& builder, Value sum, Value counts);

}  // namespace tessera
