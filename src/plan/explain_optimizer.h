#pragma once

#include <optional>
#include <string>

#include "plan/step_plan.h"

namespace tessera {

/// Returns a table of the parameters that each optimizer updates; empty if AdamW updates all.
/// Layers that have a parameter of the same name share an entry.
std::string optimizer_table(const StepPlan& plan);

/// Returns the optimizer that updates a parameter of the plan; none for a router's balancing
/// biases.
std::optional<OptimizerName> optimizer_of(const StepPlan& plan, const ParameterSpec& parameter);

}  // namespace tessera
