#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "pipeline/clock.h"
#include "pipeline/schedule.h"
#include "plan/step_plan.h"

namespace tessera {

/// What one pipeline stage holds and computes: the numbers of one of its ranks, the one whose
/// coordinates on all other axes are 0.
struct StageAccount {
  int rank = 0;
  std::vector<int> chunks;       ///< indices in StagesAccount::ranges, in the model's order
  int64_t parameters = 0;        ///< elements that the rank holds
  double step_flops = 0;         ///< FlopCount::useful() of all micro-batches
  double share = 0;              ///< of the FLOPs of all stages
  int64_t peak_bytes = 0;        ///< MemoryPlan::arena_bytes
  int64_t state_bytes = 0;       ///< of it for weights, gradients and optimizer
  int64_t activation_bytes = 0;  ///< of it, at most, for micro-batches in flight
  /// The most micro-batches whose activations the rank keeps at once, in whole stages: one chunk of
  /// v counts as a v-th.
  double in_flight = 0;

  /// Returns what takes most of the memory: "states", "activations", or "one pass" for what is in
  /// use only while a pass runs.
  std::string limit() const;
};

/// The stages of a pipeline and its schedule.
struct StagesAccount {
  std::vector<ChunkRange> ranges;  ///< by chunk of the model
  std::vector<StageAccount> stages;
  PipelineSchedule schedule;
  ScheduleFigures equal_times;  ///< if all chunks take the same time
  /// If each pass of a chunk takes as long as its FLOPs, repeated ones included.
  ScheduleFigures flops_as_times;
};

/// Returns the account of a step of one phase, or of a run without phases (RunPhase::config). None
/// if the model is one chunk. `plan_of` returns the plan of a rank; it is called once for each
/// stage.
std::optional<StagesAccount> stages_account(const RunConfig& config, const Mesh& mesh,
                                            const std::function<StepPlan(int rank)>& plan_of);

/// Returns the account as a table with a row for each stage, and lines about the schedule.
std::string stages_table(const StagesAccount& account);
/// Returns the account as an object: {"schedule": ..., "stages": [...]}.
nlohmann::ordered_json stages_json(const StagesAccount& account);

}  // namespace tessera
