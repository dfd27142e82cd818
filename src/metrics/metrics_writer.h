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

/// The beginning of the metrics of a run, or of a resumed part of it.
struct MetricsStart {
  int64_t last_step = 0;     ///< the last step that the run has done
  std::string unsaved;       ///< lines up to that step, see MetricsFile
  bool phases = false;       ///< the run has phases
  bool steps_follow = true;  ///< false: only what the files lack is written
};

/// Writes the steps of a run to its folder: metrics.jsonl and, if the configuration says so,
/// metrics.csv and TensorBoard's events (tensorboard/). Each step is in a file whole or not at all,
/// whenever the run is killed. The latter two can be made from metrics.jsonl. If one of them cannot
/// be written, the writer warns once and the run goes on without it.
class MetricsWriter {
 public:
  /// Opens the files in run.directory for the steps after the start's. Removes what an earlier part
  /// of the run wrote after that step; for TensorBoard, declares it void. It does so too for a file
  /// that only an earlier part of the run wanted. Throws Error when metrics.jsonl cannot be written
  /// or is not valid.
  MetricsWriter(const RunSection& run, const MetricsStart& start, const Logger& logger);

  /// Writes one step. Throws Error when the file system refuses to write to metrics.jsonl.
  void append(const StepMetrics& metrics);

  /// Returns when all steps are on the disk. They then survive a power cut, as the checkpoint does
  /// that is written next. Throws Error when metrics.jsonl cannot be brought to the disk.
  void sync();
  /// See MetricsFile.
  const std::string& unsaved() const { return lines_.unsaved(); }

 private:
  void open_csv(const fs::path& directory, int64_t known, const MetricsStart& start, bool wanted);
  /// Opens TensorBoard's events. An earlier part of the run may not have written them up to the
  /// start's step, or may have written steps that were discarded since; metrics.jsonl has what
  /// counts.
  void open_events(const fs::path& folder, const MetricsStart& start, bool wanted);
  /// Runs an action on a file other than metrics.jsonl. If it fails, the file is no longer written.
  template <typename File, typename Action>
  void attempt(std::optional<File>& file, const char* name, Action&& action);

  Logger logger_;
  MetricsFile lines_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventsFile> events_;
};

}  // namespace tessera
