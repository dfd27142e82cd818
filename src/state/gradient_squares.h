#pragma once

#include <span>

#include "program/builder.h"
#include "state/state_shard.h"

namespace tessera {

/// Returns the sum of the squares of all gradients, f64 [1], each element counted once. `gradients`
/// has one value for each unit, already summed over the ranks: the whole gradient, or this rank's
/// piece; null for a unit that no optimizer changes, or that other pipeline stages have. Squares
/// are added up over kSquaresElements elements at a time, and then these sums in the order of
/// `parameters`. So the bits do not depend on the number of ranks over which the gradients are cut
/// (see cut_evenly()).
Value gradient_squares(Builder& builder, std::span<const Value> gradients,
                       std::span<const ParameterUnit> units,
                       std::span<const ParameterSpec> parameters, const StateShard& shard);

}  // namespace tessera
