#pragma once

#include <string>

#include "metrics/metrics.h"

namespace tessera {

/// The first line of a metrics.csv (RFC 4180, so that lines end with a carriage return and a line
/// feed): `step` and the names of all metrics. What the sources of a mix gave, whose names are the
/// configuration's, has no columns.
std::string csv_header();

/// A step's line. A number that the step has not is an empty field, one that is not finite `nan`,
/// `inf` or `-inf`; all others read back as the same double.
std::string csv_line(const StepMetrics& metrics);

/// Appends steps to a metrics.csv, each line complete or absent.
class MetricsCsv {
 public:
  /// Writes `path` anew with the steps that `metrics_file`, a metrics.jsonl, holds: what a run
  /// resumed keeps is the same in both, also where the earlier part of the run wrote no CSV. Throws
  /// Error when it cannot be written.
  MetricsCsv(const fs::path& path, const fs::path& metrics_file);

  void append(const StepMetrics& metrics) { file_.append(csv_line(metrics)); }
  /// See AppendFile.
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace tessera
