#pragma once

#include <string>

#include "config/run_config.h"
#include "plan/step_plan.h"

namespace tessera {

/// The step program of a resolved configuration as a table for a terminal: every operation with its
/// block, shape, FLOPs, bytes and what becomes of its results (saved for the backward pass,
/// recomputed there, or a result of the run), then totals: parameters, active parameters, FLOPs a
/// token, memory. Layers that repeat an earlier one are left out unless `all_layers`.
std::string explain(const RunConfig& config, const StepPlan& plan, bool all_layers);

/// A line that says that the step needs more memory than this machine has; empty where it fits.
std::string explain_fit(const StepPlan& plan);

/// The same as explain(), as JSON, with every layer: {"operations": [...], "totals": {...}}.
std::string explain_json(const RunConfig& config, const StepPlan& plan);

}  // namespace tessera
