#pragma once

#include <string>

#include "metrics/metrics.h"

namespace tessera {

/// Returns the first line of a metrics.csv: `step` and the names of all metrics. The format is RFC
/// 4180: lines end with a carriage return and a line feed. The sources of a mix have no columns,
/// because the configuration chooses their names. If `has_phases`, the file
/// has a column `phase`.
std::string csv_header(bool has_phases = false);

/// Returns a step's line. A number that the step lacks is an empty field. A number that is not
/// finite is `nan`, `inf` or `-inf`. All others read back as the same double.
std::string csv_line(const StepMetrics& metrics, bool has_phases = false);

/// Appends steps to a metrics.csv. Each line is complete or absent.
class MetricsCsv {
 public:
  /// Writes `path` anew with the steps in `metrics_file`, a metrics.jsonl. Both files of a resumed
  /// run thus have the same steps, even if the earlier part of the run wrote no CSV. Throws Error
  /// when the file cannot be written.
  MetricsCsv(const fs::path& path, const fs::path& metrics_file, bool has_phases = false);

  void append(const StepMetrics& metrics) { file_.append(csv_line(metrics, has_phases_)); }
  /// Waits until all lines are on the disk (see AppendFile).
  void sync() { file_.sync(); }

 private:
  bool has_phases_;
  AppendFile file_;
};

}  // namespace tessera
