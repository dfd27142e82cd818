#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/step_plan.h"

namespace tessera {

/// Returns the distribution of a value over the axes that have more than one rank: "tensor: sharded
/// (dim 0, even)". The value is invariant on axes that are not named.
std::string type_of_ranks(const Mesh& mesh, Distribution type);

/// Returns a table of the tensors that a rank keeps from step to step or reads from outside. It
/// lists each parameter, with the shapes of the whole and of the rank's piece, its type and the
/// type of its main gradient. The inputs of a micro-batch follow. Without `all_layers` it lists
/// only the first layer of each kind: layer 0 and layer `first_mixture`, before which layers are
/// dense.
std::string held_table(const StepPlan& plan, int64_t first_mixture, bool all_layers);

/// Returns the rows of held_table() as an array, with all layers and all axes.
nlohmann::ordered_json held_json(const StepPlan& plan);

/// Returns a table of the parameters that each optimizer updates; empty if AdamW updates all.
/// Layers that have a parameter of the same name share an entry.
std::string optimizer_table(const StepPlan& plan);

/// Returns the number of elements of all parameters on the rank, without padding.
int64_t elements_on_rank(const StepPlan& plan);

/// Returns the bytes of the masters and moments on the rank: of all its parameters, or of the piece
/// that shard.optimizer leaves it. Weights that are their own masters are not counted.
int64_t optimizer_bytes(const StepPlan& plan);

}  // namespace tessera
