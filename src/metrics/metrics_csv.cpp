#include "metrics/metrics_csv.h"

#include <fmt/format.h>

namespace tessera {
namespace {

bool has_column(const Metric& metric, bool phases) { return phases || metric.name != "phase"; }

/// Writes `path` anew with the steps of a metrics.jsonl. Returns `path`.
const fs::path& write_steps(const fs::path& path, const fs::path& metrics_file, bool phases) {
  std::string text = csv_header(phases);
  for (const StepMetrics& metrics : read_metrics(metrics_file)) text += csv_line(metrics, phases);
  write_file(path, text);
  return path;
}

}  // namespace

std::string csv_header(bool phases) {
  std::string line = "step";
  for (const Metric& metric : all_metrics()) {
    if (has_column(metric, phases)) line += fmt::format(",{}", metric.name);
  }
  return line + "\r\n";
}

std::string csv_line(const StepMetrics& metrics, bool phases) {
  std::string line = fmt::format("{}", metrics.step);
  for (const Metric& metric : all_metrics()) {
    if (!has_column(metric, phases)) continue;
    line += ',';
    if (const auto value = metric.value(metrics)) line += fmt::format("{}", *value);
  }
  return line + "\r\n";
}

MetricsCsv::MetricsCsv(const fs::path& path, const fs::path& metrics_file, bool phases)
    : phases_(phases), file_(write_steps(path, metrics_file, phases)) {}

}  // namespace tessera
