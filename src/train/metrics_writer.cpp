#include "train/metrics_writer.h"

#include <string>
#include <vector>

namespace tessera {
namespace {

fs::path lines_path(const RunSection& run) { return fs::path(run.directory) / "metrics.jsonl"; }

}  // namespace

MetricsWriter::MetricsWriter(const RunSection& run, int64_t last_step)
    : lines_(lines_path(run), last_step) {
  const fs::path directory = run.directory;
  if (run.csv) csv_.emplace(directory / "metrics.csv", lines_path(run));
  if (run.tensorboard) events_.emplace(directory / "tensorboard", last_step + 1);
}

void MetricsWriter::append(const StepMetrics& metrics) {
  lines_.append(metrics);
  if (csv_) csv_->append(metrics);
  if (!events_) return;
  std::vector<Scalar> scalars;
  for (const Metric& metric : all_metrics()) {
    if (const auto value = metric.value(metrics))
      scalars.push_back({std::string(metric.tag), *value});
  }
  for (const SourceMetrics& source : metrics.sources) {
    const std::string tag = "sources/" + source.name;
    scalars.push_back({tag + "/tokens", static_cast<double>(source.tokens)});
    scalars.push_back({tag + "/epochs", source.epochs});
    if (source.held_out_loss) scalars.push_back({tag + "/held_out_loss", *source.held_out_loss});
  }
  events_->append(metrics.step, scalars);
}

}  // namespace tessera
