#pragma once

#include <cstdint>
#include <set>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/step_plan.h"

namespace tessera {

// The tables of `explain` that show what a rank holds.

/// Returns a distribution as text, without axes that have only one rank: "tensor: sharded (dim 0,
/// even)". On an axis of several ranks that the text does not name, the value is invariant.
std::string distribution_text(const Mesh& mesh, Distribution type);

/// Returns a table of the parameters that a rank keeps, and of the inputs of a micro-batch. A row
/// has the shapes of the whole and of the rank's piece, and its distribution. The row of a
/// parameter also has the main gradient's distribution and the optimizer. Without `all_layers` it
/// lists only layer 0 and `first_mixture`, the first layer with experts.
std::string held_table(const StepPlan& plan, int64_t first_mixture, bool all_layers);

/// Returns the rows of held_table() as an array, with all layers and all axes.
nlohmann::ordered_json held_json(const StepPlan& plan);

/// Returns a table of the parameters that each optimizer updates; empty if AdamW updates all. A
/// name is without its layer, so it is listed once for all layers.
std::string optimizer_table(const StepPlan& plan);

/// Returns the number of elements of all parameters on the rank, without padding.
int64_t elements_on_rank(const StepPlan& plan);

/// Returns the names that masters and moments have as states. Weights that are their own masters
/// have none.
std::set<std::string> optimizer_states(const StepPlan& plan);

/// Returns the bytes of the masters and moments on the rank. With shard.optimizer the rank has them
/// for a piece of its parameters. Weights that are their own masters are not counted.
int64_t optimizer_bytes(const StepPlan& plan);

}  // namespace tessera
