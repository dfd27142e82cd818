#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "config/run_config.h"
#include "metrics/metrics.h"
#include "metrics/metrics_csv.h"
#include "metrics/tensorboard/events_file.h"

namespace tessera {

/// The state of a run at the point from which a MetricsWriter goes on: its start or a checkpoint.
struct MetricsStart {
  int64_t last_step = 0;  ///< the last step that the run has done; 0: none
  std::string unsaved;    ///< the checkpoint's lines for MetricsFile; empty: none
  bool has_phases = false;
  bool steps_follow = true;  ///< false if the run has ended: only missing steps are then added
};

/// Writes the steps of a run to its folder. metrics.jsonl is always written. The configuration can
/// switch on two other forms: metrics.csv and TensorBoard's events (tensorboard/). The constructor
/// restores both from metrics.jsonl. A step is in a file whole or not at all, even if the run is
/// killed. If one of these two forms cannot be written, the writer warns and goes on without it.
class MetricsWriter {
 public:
  /// Opens the files in run.directory for the steps after `start.last_step`. Later steps, which a
  /// killed run may have written, are removed from the files. TensorBoard's files are not changed;
  /// a new one declares those steps void. Files that were written before, but are switched off now,
  /// are treated in the same way. Throws Error when metrics.jsonl cannot be written or is not
  /// valid.
  MetricsWriter(const RunSection& run, const MetricsStart& start, const Logger& logger);

  /// Writes one step. Throws Error when the file system refuses to write to metrics.jsonl.
  void append(const StepMetrics& metrics);

  /// Waits until all steps are on the disk, so that a power cut cannot remove them. Throws Error
  /// when this fails for metrics.jsonl.
  void sync();
  /// Returns the lines that may not be on the disk, for the next checkpoint (see MetricsFile).
  const std::string& unsaved() const { return lines_.unsaved(); }

 private:
  /// Writes metrics.csv anew from metrics.jsonl, which has `known_steps` of the steps up to the
  /// start. Closes it again unless it is `wanted`.
  void open_csv(const fs::path& directory, int64_t known_steps, const MetricsStart& start,
                bool wanted);
  /// Makes TensorBoard's events agree with metrics.jsonl: from the first step that is missing or
  /// different, the recorded steps are declared void and those of metrics.jsonl are written. Closes
  /// them again unless they are `wanted`.
  void open_events(const fs::path& folder, const MetricsStart& start, bool wanted);
  /// Runs an action on the CSV or the events. If it fails, warns and closes the file.
  template <typename File, typename Action>
  void attempt(std::optional<File>& file, const char* name, Action&& action);

  Logger logger_;
  MetricsFile lines_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventsFile> events_;
};

}  // namespace tessera
