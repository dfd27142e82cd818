#pragma once

#include <span>
#include <string>

#include "config/run_config.h"
#include "plan/explain_phases.h"
#include "plan/fit.h"
#include "plan/step_plan.h"

namespace tessera {

struct ExplainOptions {
  bool all_layers = false;  ///< otherwise only the first layer of each kind is listed
  /// Also say how each result lies over the ranks, and list the retypings, which move nothing.
  bool types = false;
};

/// Returns the step program of one rank of a resolved configuration as a table for a terminal. It
/// lists every operation with its block, shape, FLOPs, bytes and what becomes of its results: saved
/// for the backward pass, recomputed there, or a result of the run; with several ranks also what
/// the rank holds and the bytes that it sends. Compressed attention is compared with plain
/// attention (plan/explain_attention.h). Totals follow: parameters, active parameters, FLOPs per
/// token, bytes sent by axis, memory.
std::string explain(const RunConfig& config, const StepPlan& plan, const ExplainOptions& options);

/// Returns a line that says that the step needs more memory than this process may use or than is
/// free now, or that the configuration's device is not known here. Empty if it fits.
std::string explain_fit(const RunConfig& config, const StepPlan& plan);

/// Returns the same as explain() as JSON, with every layer and all types: {"layout": {...},
/// "held": [...], "operations": [...], "totals": {...}}, the comparison of compressed attention as
/// "attention" if the model has it, the fit as "fit" if there is one, and the phases of the run as
/// "phases" if it has any.
std::string explain_json(const RunConfig& config, const StepPlan& plan, const Fit* fit = nullptr,
                         std::span<const PhaseAccount> phases = {});

}  // namespace tessera
