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

/// The state of a run's metrics when the run starts or is resumed.
struct MetricsStart {
  int64_t last_step = 0;     ///< the last step that the run has done
  std::string unsaved;       ///< lines up to that step that may not be on the disk, see MetricsFile
  bool phases = false;       ///< the run has phases
  bool steps_follow = true;  ///< false: only steps that the files lack are written
};

/// Writes the steps of a run to its folder: metrics.jsonl and, if the configuration says so,
/// metrics.csv and TensorBoard's events (tensorboard/). Each step is in a file whole or not at all,
/// even if the run is killed. The latter two can be made from metrics.jsonl. If one of them cannot
/// be written, the writer warns once and the run goes on without it.
class MetricsWriter {
 public:
  /// Opens the files in run.directory for the steps after `start.last_step`. Removes what an
  /// earlier part of the run wrote after that step; in TensorBoard's files, declares it void. It
  /// does so even if this part of the run does not write the file. Throws Error when metrics.jsonl
  /// cannot be written or is not valid.
  MetricsWriter(const RunSection& run, const MetricsStart& start, const Logger& logger);

  /// Writes one step. Throws Error when the file system refuses to write to metrics.jsonl.
  void append(const StepMetrics& metrics);

  /// Waits until all steps are on the disk. They then survive a power cut, like the checkpoint that
  /// is written next. Throws Error when metrics.jsonl cannot be brought to the disk.
  void sync();
  /// Returns the lines that may not be on the disk (see MetricsFile).
  const std::string& unsaved() const { return lines_.unsaved(); }

 private:
  void open_csv(const fs::path& directory, int64_t known, const MetricsStart& start, bool wanted);
  /// Opens TensorBoard's events. They may lack steps up to the start's step, or hold steps that
  /// were discarded since; metrics.jsonl has the valid ones.
  void open_events(const fs::path& folder, const MetricsStart& start, bool wanted);
  /// Runs an action on a file other than metrics.jsonl. If it fails, closes the file.
  template <typename File, typename Action>
  void attempt(std::optional<File>& file, const char* name, Action&& action);

  Logger logger_;
  MetricsFile lines_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventsFile> events_;
};

}  // namespace tessera
