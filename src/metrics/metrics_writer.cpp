#include "metrics/metrics_writer.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "metrics/tensorboard/recorded_steps.h"

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

/// Returns the number of lines in a metrics.csv that are of the steps 1 to `last_step`.
int64_t csv_steps(const fs::path& path, int64_t last_step) {
  if (!path_exists(path)) return 0;
  const std::string text = read_file(path);
  int64_t steps = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    int64_t step = 0;  // the header leaves it 0
    std::from_chars(text.data() + begin, text.data() + end, step);
    if (step >= 1 && step <= last_step) ++steps;
    begin = end + 1;
  }
  return steps;
}

/// Renames a metrics.csv that holds more than `known` of the steps to `last_step`. It is about to
/// be made anew from metrics.jsonl, which knows only these.
void keep_csv(const fs::path& directory, int64_t known, int64_t last_step, const Logger& logger) {
  const fs::path path = directory / "metrics.csv";
  if (csv_steps(path, last_step) <= known) return;
  fs::path kept;
  for (int number = 1; path_exists(kept = directory / fmt::format("metrics-{}.csv", number));) {
    ++number;
  }
  fs::rename(path, kept);
  logger.warn("{} is kept as {}", path.string(), kept.string());
}

}  // namespace

MetricsWriter::MetricsWriter(const RunSection& run, int64_t last_step, const Logger& logger,
                             bool phases)
    : logger_(logger), lines_(lines_path(run), last_step) {
  const fs::path directory = run.directory;
  const int64_t missing = missing_steps(lines_path(run), last_step);
  if (missing > 0) {
    logger.warn(
        "{} lacks {} of the {} steps that the run has done: pictures and comparisons lack them too",
        lines_path(run).string(), missing, last_step);
  }
  if (run.csv) {
    attempt(csv_, kCsv, [&] {
      keep_csv(directory, last_step - missing, last_step, logger);
      csv_.emplace(directory / "metrics.csv", lines_path(run), phases);
    });
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
  } catch (const std::runtime_error& error) {  // our own errors and those of the file system
    file.reset();
    logger_.warn("{} are written no more until the run is resumed, which completes them: {}", name,
                 error.what());
  }
}

}  // namespace tessera
