#pragma once

#include <cstdint>
#include <optional>

#include "config/run_config.h"
#include "train/metrics.h"
#include "train/metrics_csv.h"
#include "train/tensorboard/events_file.h"

namespace tessera {

/// Writes the steps of a run to its folder: metrics.jsonl, and as the configuration says
/// metrics.csv and TensorBoard's events (tensorboard/). Each step is in a file whole or not at all,
/// whenever the run is killed.
class MetricsWriter {
 public:
  /// Opens the files in run.directory for the steps after `last_step`; what an earlier part of the
  /// run wrote beyond it is removed, or declared void in the case of TensorBoard. Throws Error when
  /// a file cannot be written or metrics.jsonl is not valid.
  MetricsWriter(const RunSection& run, int64_t last_step);

  /// Writes one step; throws Error when the file system refuses it.
  void append(const StepMetrics& metrics);

 private:
  MetricsFile lines_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventsFile> events_;
};

}  // namespace tessera
