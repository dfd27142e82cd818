#include "metrics/metrics_csv.h"

#include <fmt/format.h>

namespace tessera {
namespace {

const fs::path& with_steps_of(const fs::path& path, const fs::path& metrics_file) {
  std::string text = csv_header();
  for (const StepMetrics& metrics : read_metrics(metrics_file)) text += csv_line(metrics);
  write_file(path, text);
  return path;
}

}  // namespace

std::string csv_header() {
  std::string line = "step";
  for (const Metric& metric : all_metrics()) line += fmt::format(",{}", metric.name);
  return line + "\r\n";
}

std::string csv_line(const StepMetrics& metrics) {
  std::string line = fmt::format("{}", metrics.step);
  for (const Metric& metric : all_metrics()) {
    line += ',';
    if (const auto value = metric.value(metrics)) line += fmt::format("{}", *value);
  }
  return line + "\r\n";
}

MetricsCsv::MetricsCsv(const fs::path& path, const fs::path& metrics_file)
    : file_(with_steps_of(path, metrics_file)) {}

}  // namespace tessera
