#include "train/metrics_writer.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "train/tensorboard/recorded_steps.h"

namespace tessera {
namespace {

constexpr const char* kCsv = "the lines of metrics.csv";
constexpr const char* kEvents = "TensorBoard's events";

fs::path lines_path(const RunSection& run) { return fs::path(run.directory) / "metrics.jsonl"; }

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
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
  return scalars;
}

}  // namespace

MetricsWriter::MetricsWriter(const RunSection& run, int64_t last_step, const Logger& logger)
    : logger_(logger), lines_(lines_path(run), last_step) {
  const fs::path directory = run.directory;
  if (run.csv) {
    attempt(csv_, kCsv, [&] { csv_.emplace(directory / "metrics.csv", lines_path(run)); });
  }
  if (run.tensorboard) {
    attempt(events_, kEvents, [&] { open_events(directory / "tensorboard", last_step); });
  }
}

void MetricsWriter::open_events(const fs::path& folder, int64_t last_step) {
  const int64_t recorded = std::min(last_recorded_step(folder), last_step);
  events_.emplace(folder, recorded + 1);
  if (recorded == last_step) return;
  for (const StepMetrics& metrics : read_metrics(folder.parent_path() / "metrics.jsonl")) {
    if (metrics.step > recorded) events_->append(metrics.step, scalars_of(metrics));
  }
}

void MetricsWriter::append(const StepMetrics& metrics) {
  lines_.append(metrics);
  if (csv_) attempt(csv_, kCsv, [&] { csv_->append(metrics); });
  if (events_)
    attempt(events_, kEvents, [&] { events_->append(metrics.step, scalars_of(metrics)); });
}

void MetricsWriter::sync() {
  lines_.sync();
  if (csv_) attempt(csv_, kCsv, [&] { csv_->sync(); });
  if (events_) attempt(events_, kEvents, [&] { events_->sync(); });
}

template <typename File, typename Action>
void MetricsWriter::attempt(std::optional<File>& file, const char* name, Action&& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {  // of ours and of the file system
    file.reset();
    logger_.warn("{} are written no more until the run is resumed, which completes them: {}", name,
                 error.what());
  }
}

}  // namespace tessera
