#include "metrics/metrics_csv.h"

#include <fmt/format.h>

namespace tessera {
namespace {

bool has_column(const Metric& metric, bool phases) { return phases || metric.name != "phase"; }

/// Writes `path` anew with the steps of a metrics.jsonl. Returns `path`.
const fs::path& write_steps(const fs::path& path, const fs::path& metrics_file, bool has_phases) {
  std::string text = csv_header(has_phases);
  for (const StepMetrics& step : read_metrics(metrics_file)) text += csv_line(step, has_phases);
  write_file(path, text);
  return path;
}

}  // namespace

std::string csv_header(bool has_phases) {
  std::string line = "step";
  for (const Metric& metric : all_metrics()) {
    if (has_column(metric, has_phases)) line += fmt::format(",{}", metric.name);
  }
  return line + "\r\n";
}

std::string csv_line(const StepMetrics& metrics, bool has_phases) {
  std::string line = fmt::format("{}", metrics.step);
  for (const Metric& metric : all_metrics()) {
    if (!has_column(metric, has_phases)) continue;
    line += ',';
    if (const auto value = metric.value(metrics)) line += fmt::format("{}", *value);
  }
  return line + "\r\n";
}

MetricsCsv::MetricsCsv(const fs::path& path, const fs::path& metrics_file, bool has_phases)
    : has_phases_(has_phases), file_(write_steps(path, metrics_file, has_phases)) {}

}  // namespace tessera
