#pragma once

#include <optional>
#include <string>

#include "plan/step_plan.h"

namespace tessera {

/// Which parameters each optimizer updates, a table; empty if AdamW updates all. Layers that have a
/// parameter of the same name share an entry.
std::string optimizer_table(const StepPlan& plan);

/// The optimizer that updates a parameter of the plan; none of what balances a router.
std::optional<OptimizerName> optimizer_of(const StepPlan& plan, const ParameterSpec& parameter);

}  // namespace tessera
