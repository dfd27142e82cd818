#pragma once

#include <span>

#include "program/builder.h"
#include "state/unit_shard.h"

namespace tessera {

/// The sum of the squares of all gradients, f64 [1], each element counted once. `gradients` has
/// those of each unit, whose sums over ranks are taken: the whole ones, or this rank's pieces. They
/// are null for a unit that no optimizer changes.
/// Squares are added up over a few elements at a time, and these sums in the order of
/// `parameters`. So the bits do not depend on whether the gradients are cut, and over how many
/// ranks (see cut_evenly()).
Value gradient_squares(Builder& builder, std::span<const Value> gradients,
                       std::span<const ParameterSpec> parameters, const StateShards& shards);

}  // namespace tessera
