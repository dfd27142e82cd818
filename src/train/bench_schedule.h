#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/words.h"
#include "comm/mesh.h"
#include "comm/processes.h"
#include "config/run_config.h"
#include "pipeline/clock.h"
#include "plan/blocks/repeats.h"

namespace tessera {

// A timed run: the ranks execute their lists with real messages and collectives, but each pass
// takes a time that was set beforehand (Executor::set_node_seconds()). So a few cores show how long
// many ranks wait for each other.

/// The rule for the times of passes.
enum class PassRule {
  equal,  ///< each pass of a stage takes the same time, shared out evenly over its chunks
  flops,  ///< in proportion to FLOPs
  file    ///< those of a file (see read_chunk_times())
};
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<PassRule>{"equal", "flops", "file"};

/// Says how long passes take.
struct PassLengths {
  PassRule rule = PassRule::equal;
  /// For `equal` and `flops`: the mean seconds of a stage's forward, input gradients and weight
  /// gradients of one micro-batch.
  double mean_seconds = 0.01;
  fs::path path;  ///< of the file
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
  std::vector<int64_t> arena_bytes;  ///< by stage: MemoryPlan::arena_bytes
};

/// Runs the passes of a step's micro-batches, without the update, on ranks that are threads, and
/// measures one rank of each stage: the one whose coordinates on all other axes are 0. Takes a
/// resolved configuration of one phase after with_stage_layers(). Throws Error if the run does not
/// fit into memory or is not for the processor, if the lengths do not fit the schedule, or if the
/// ranks exchange tokens for their experts: how many is not known without values.
ScheduleMeasurement measure_schedule(const RunConfig& config, const Mesh& mesh,
                                     const PassLengths& lengths, const Repeats& repeats);
/// Does so with ranks that are processes. All ranks call it. The first one gets the
/// measurement.
std::optional<ScheduleMeasurement> measure_schedule(const RunConfig& config, const Mesh& mesh,
                                                    const PassLengths& lengths,
                                                    const Repeats& repeats, Processes& processes);

/// Returns the measurement as a JSON object on one line.
std::string schedule_json(const ScheduleMeasurement& measurement);
std::string schedule_text(const ScheduleMeasurement& measurement);

}  // namespace tessera
