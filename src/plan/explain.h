#pragma once

#include <span>
#include <string>

#include "config/run_config.h"
#include "plan/explain_phases.h"
#include "plan/explain_stages.h"
#include "plan/fit.h"
#include "plan/step_plan.h"

namespace tessera {

/// The contents of the tables of explain().
struct ExplainOptions {
  bool all_layers = false;  ///< false: only the first layer of each kind is listed
  /// True to list also the distributions of results, and retype operations, which move no data.
  bool types = false;
};

/// Returns what one rank would run for a resolved configuration, as tables for a terminal:
///
/// - with several ranks, the levels of the network with the axes of the mesh that are within each,
///   and the tensors that the rank holds (explain_held.h);
/// - if attention is compressed, a comparison with plain attention (explain_attention.h);
/// - every operation of a step: its block, shape, FLOPs and bytes, and whether its results are kept
///   for the backward pass, recomputed there, or results of the run (explain_rows.h);
/// - with several ranks, what of their communication runs beside what, and what stays exposed and
///   why (explain_overlap.h);
/// - totals: parameters, FLOPs per token, bytes sent by axis, memory;
/// - the memory that the rank reserves, by what it is for (explain_memory.h).
std::string explain(const RunConfig& config, const StepPlan& plan, const ExplainOptions& options);

/// Returns a warning if the step needs more memory than this process may use, or than is free now.
/// All ranks count, as if each needed what this one needs and ran on this machine. For a GPU
/// returns how to ask what fits there. Returns an empty text if the step fits.
std::string explain_fit(const RunConfig& config, const StepPlan& plan);

/// Returns the content of explain() as JSON, with every layer and all types, but without views:
/// {"layout": {...}, "held": [...], "operations": [...], "totals": {...}, "memory": {...}}. It has
/// "overlap" only with several ranks, "attention" only if attention is compressed, "fit" only if
/// `fit` is given, "phases" only if `phases` are, and "pipeline" only if `stages` are.
std::string explain_json(const RunConfig& config, const StepPlan& plan, const Fit* fit = nullptr,
                         std::span<const PhaseAccount> phases = {},
                         const StagesAccount* stages = nullptr);

}  // namespace tessera
