#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_trace.h"
#include "pipeline/schedule.h"

namespace tessera {

// A traced training step of all ranks of a run (RunTrace), and its file.

/// An entry of a stage's list as it ran. Times are as in TraceEvent.
struct TimedEntry {
  ScheduleEntry entry;
  double start = 0;
  double duration = 0;
  double bytes = 0;  ///< that this rank sends: the message of a `post send`

  bool operator==(const TimedEntry&) const = default;
  double end() const { return start + duration; }
};

/// The traced step of one rank.
struct RankTrace {
  StepTrace step;                ///< its operations
  std::vector<TimedEntry> list;  ///< what its stage's list made it do, in order
  int stage = 0;
  std::vector<int> chunks{0};  ///< those of its stage, in the model's order
  int pipeline = 0;            ///< the first rank of its pipeline
  /// Its coordinates, by the names of the axes of the mesh that divide the ranks of its stage.
  std::map<std::string, int> coordinates = {};

  int rank() const { return step.origin.rank; }
  /// Returns the rank with its stage and its coordinates: "rank 5: stage 1, data 0, tensor 1".
  std::string title() const;
  bool operator==(const RankTrace&) const = default;
};

/// What the ranks of a traced run have in common.
struct TracedSchedule {
  std::string name;  ///< of the pipeline schedule; empty in files of versions that did not write it
  int micro_batches = 0;

  bool operator==(const TracedSchedule&) const = default;
};

/// The traced step of a run. Times of all ranks count from the same moment.
struct RunTrace {
  TracedSchedule schedule;
  std::vector<RankTrace> ranks;  ///< in ascending order, at least one
  int ranks_left_out = 0;        ///< how many ranks of the run are not in the file, for its size
  /// Whether events say which ranks they call. Files of earlier versions do not.
  bool has_groups = true;

  bool operator==(const RunTrace&) const = default;
  /// Returns the trace of a rank. Throws Error that names the ranks which the trace has.
  const RankTrace& of_rank(int rank) const;
};

/// The text of one rank in the file of a run: its events, and its entry among the ranks.
struct RankTraceText {
  std::string events;
  std::string entry;
};
RankTraceText rank_trace_text(const RankTrace& trace);

/// Returns the file of a step as JSON in the trace event format, which Chrome (chrome://tracing)
/// and Perfetto (ui.perfetto.dev) open. Fields outside that format go into "otherData".
/// `ranks_left_out` is as in RunTrace.
std::string run_trace_text(const TracedSchedule& schedule, std::span<const RankTraceText> ranks,
                           int ranks_left_out);

/// Writes the file of a step. The write is atomic. Throws Error if it fails.
void write_trace(const std::filesystem::path& path, const RunTrace& trace);

/// What to do about a file that cannot be read.
inline constexpr std::string_view kTraceAdvice =
    "`tessera train` with run.trace_step and `tessera bench schedule --trace` write a new one";

/// Reads a file that write_trace() wrote. Throws Error, which says what is wrong, if the file is
/// damaged, comes from another program or version, or does not have exactly one step of each rank.
RunTrace read_trace(const std::filesystem::path& path);

/// Returns the file of a step's trace, given it or the folder of its run.
std::filesystem::path trace_file(const std::filesystem::path& run_or_file);

}  // namespace tessera
