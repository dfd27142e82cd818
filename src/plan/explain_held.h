#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/step_plan.h"

namespace tessera {

/// How a value lies over the axes that have more than one rank: "tensor: sharded (dim 0, even)". It
/// is invariant on those that are not named.
std::string type_of_ranks(const Mesh& mesh, Distribution type);

/// What a rank keeps from step to step and reads from outside: each parameter with the shape of the
/// whole, that of its piece, its type and that of its main gradient; and the inputs of a
/// micro-batch. Of several layers only the first of each kind, unless all are wanted; the layers
/// before `first_mixture` are dense.
std::string held_table(const StepPlan& plan, int64_t first_mixture, bool all_layers);

/// The same as an array, with all layers and all axes.
nlohmann::ordered_json held_json(const StepPlan& plan);

/// The elements of all parameters on the rank, without padding.
int64_t elements_on_rank(const StepPlan& plan);

/// The bytes of the masters and moments that the rank has: of all its parameters, or of the piece
/// that shard.optimizer leaves it. Weights that are their own masters are not counted.
int64_t optimizer_bytes(const StepPlan& plan);

}  // namespace tessera
