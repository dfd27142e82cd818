#pragma once

#include "program/builder.h"

namespace tessera {

// Counts of the experts' tokens for load-balance losses (ops/router/losses.h) whose set of tokens
// is not the micro-batch of all ranks: the micro-batch of one rank, or the step so far. They have
// no gradient.

/// Counts the choices of each expert in sets of tokens: i32 [sets, experts], from indices i32
/// [tokens, k]. Sets are runs of tokens of equal length, the outer factor of dim 0; a rank has
/// `sets` of them. The axes that split the outer factor (the levels of the data axis) split the
/// sets. The counts are summed over the ranks that split the inner factor (tensor and context). An
/// index outside [0, experts) chooses no expert.
Value set_counts(Builder& builder, Value indices, int64_t experts, int64_t sets = 1);

/// Returns the mean of the counts of all micro-batches of a step so far: f64 [experts]. `sum` is
/// the state f64 [experts] to which the counts of each were added. `counts`, i32 [experts], are
/// those of this micro-batch, which `sum` already contains. A micro-batch has N = Σ_e c_e choices.
/// With c the counts and s the sum, the mean is s_e N / Σ_e s_e; in the first micro-batch it is c_e
/// exactly.
Value step_counts(Builder& builder, Value sum, Value counts);

}  // namespace tessera
