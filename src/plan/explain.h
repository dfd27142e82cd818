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
  /// Also list the distribution of each result over the ranks, and the retype operations, which
  /// move no data.
  bool types = false;
};

/// Returns the step program of one rank of a resolved configuration as a table for a terminal. It
/// lists every operation with its block, shape, FLOPs and bytes, and says whether its results are
/// saved for the backward pass, recomputed there, or a result of the run. With several ranks it
/// also lists the tensors that the rank holds and the bytes that it sends. Compressed attention is
/// compared with plain attention (plan/explain_attention.h). Totals follow: parameters, active
/// parameters, FLOPs per token, bytes sent by axis, memory.
std::string explain(const RunConfig& config, const StepPlan& plan, const ExplainOptions& options);

/// Returns a line if the step needs more memory than this process may use or than is free now, or
/// if the configuration's device is not known here. Returns an empty text if it fits.
std::string explain_fit(const RunConfig& config, const StepPlan& plan);

/// Returns the content of explain() as JSON, with every layer and all types: {"layout": {...},
/// "held": [...], "operations": [...], "totals": {...}}. Three entries are there only if they
/// apply: "attention", the comparison of compressed attention; "fit"; and "phases", the phases of
/// the run.
std::string explain_json(const RunConfig& config, const StepPlan& plan, const Fit* fit = nullptr,
                         std::span<const PhaseAccount> phases = {});

}  // namespace tessera
