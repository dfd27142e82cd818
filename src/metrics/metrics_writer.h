#pragma once

#include <cstdint>
#include <optional>

#include "base/log.h"
#include "config/run_config.h"
#include "metrics/metrics.h"
#include "metrics/metrics_csv.h"
#include "metrics/tensorboard/events_file.h"

namespace tessera {

/// Writes the steps of a run to its folder: metrics.jsonl, and as the configuration says
/// metrics.csv and TensorBoard's events (tensorboard/). Each step is in a file whole or not at all,
/// whenever the run is killed. The latter two can be made from the first: where one of them cannot
/// be written that is warned of, once, and the run goes on without it.
class MetricsWriter {
 public:
  /// Opens the files in run.directory for the steps after `last_step`; what an earlier part of the
  /// run wrote beyond it is removed, or declared void in the case of TensorBoard. Throws Error when
  /// metrics.jsonl cannot be written or is not valid.
  MetricsWriter(const RunSection& run, int64_t last_step, const Logger& logger);

  /// Writes one step; throws Error when the file system refuses it to metrics.jsonl.
  void append(const StepMetrics& metrics);

  /// Returns when all steps are on the disk, so that they outlive a power cut as the checkpoint
  /// does that is written next. Throws Error when metrics.jsonl cannot be brought there.
  void sync();

 private:
  /// Opens TensorBoard's events, which an earlier part of the run may not have written up to
  /// `last_step`: steps that they lack are taken from metrics.jsonl.
  void open_events(const fs::path& folder, int64_t last_step);
  /// Does something with a file beside metrics.jsonl, which is written no more where that fails.
  template <typename File, typename Action>
  void attempt(std::optional<File>& file, const char* name, Action&& action);

  Logger logger_;
  MetricsFile lines_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventsFile> events_;
};

}  // namespace tessera
