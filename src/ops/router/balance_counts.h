#pragma once

#include "program/builder.h"

namespace tessera {

// Counts of the experts' tokens for load-balance losses (ops/router/losses.h) whose set of tokens
// is not the micro-batch of all ranks. set_counts() is for BalanceTokens::rank, and step_counts()
// for BalanceTokens::global_batch. The counts have no gradient.

/// Counts the choices of each expert in each set of tokens: i32 [sets, experts], from indices i32
/// [tokens, k]. This rank's tokens are `sets` consecutive sets of equal size, which are the outer
/// factor of dim 0. Axes that split the outer factor (the levels of the data axis) give the ranks
/// different sets. The counts are summed over the ranks that split the inner factor (tensor and
/// context). An index outside [0, experts) chooses no expert. It runs on the processor only.
Value set_counts(Builder& builder, Value indices, int64_t experts, int64_t sets = 1);

/// Returns the mean of the counts of all micro-batches of a step so far: f64 [experts]. `sum` is
/// the state f64 [experts] to which the counts of each micro-batch were added. `counts`, i32
/// [experts], are those of this micro-batch, which `sum` already contains. With c the counts, s the
/// sum and N = Σ_e c_e the choices of a micro-batch, the mean is s_e N / Σ_e s_e, or 0 if there are
/// no choices. In the first micro-batch it is exactly c_e.
Value step_counts(Builder& builder, Value sum, Value counts);

}  // namespace tessera
