#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "comm/processes.h"
#include "config/run_config.h"
#include "pipeline/clock.h"
#include "pipeline/gather_traces.h"
#include "plan/blocks/repeats.h"
#include "plan/predicted_step.h"
#include "train/pass_lengths.h"

namespace tessera {

// A timed run: the ranks execute their lists with real messages and collectives, but each pass
// takes a time that was set beforehand (Executor::set_node_seconds()). So a few cores show how long
// many ranks wait for each other.

/// How long a measured step took, of all ranks.
struct StepTimes {
  double seconds = 0;  ///< from the first rank's start to the end of the last rank's update
  /// From the end of the last pass to the end of the last update. This is the time of its
  /// collectives, unless PassLengths::computes_update.
  double update_seconds = 0;
};

/// A schedule, and how long the ranks took for it.
struct ScheduleMeasurement {
  PipelineSchedule schedule;
  PassLengths lengths;
  int ranks = 1;
  ScheduleFigures expected;  ///< of measure() for these lengths, in seconds
  /// Of each measured run. An action begins when the rank comes to it, and lasts as long as it was
  /// set; all other time is idle.
  std::vector<ScheduleFigures> measured;
  std::vector<StepTimes> steps;      ///< of each measured run
  std::vector<int64_t> arena_bytes;  ///< by stage: MemoryPlan::arena_bytes
  GatheredTraces traces;             ///< of the last measured step; empty unless it is traced
  /// What predict_step() says of the step; none unless the lengths and the times of calls are those
  /// of run.hardware.
  std::optional<PredictedStep> predicted = {};
};

/// Runs steps on ranks that are threads: the passes of the micro-batches, and the update. The
/// figures of the schedule are those of one rank of each stage: the one whose coordinates on all
/// other axes are 0. Takes a resolved configuration of one phase after with_stage_layers(). Throws
/// Error if the run does not fit into memory or is not for the processor, if the lengths do not fit
/// the schedule, or if the ranks exchange tokens for their experts and the router is free to choose
/// them: how many is not known without values. `traces_last` says whether the last measured step is
/// traced (run_traced()).
ScheduleMeasurement measure_schedule(const RunConfig& config, const Mesh& mesh,
                                     const PassLengths& lengths, const Repeats& repeats,
                                     bool traces_last = false);
/// Does so with ranks that are processes. All ranks call it. The first one gets the
/// measurement.
std::optional<ScheduleMeasurement> measure_schedule(const RunConfig& config, const Mesh& mesh,
                                                    const PassLengths& lengths,
                                                    const Repeats& repeats, Processes& processes,
                                                    bool traces_last = false);

/// Returns the measurement as a JSON object on one line.
std::string schedule_json(const ScheduleMeasurement& measurement);
std::string schedule_text(const ScheduleMeasurement& measurement);

}  // namespace tessera
