#include "metrics/metrics_writer.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/hash.h"

namespace tessera {
namespace {

constexpr const char* kCsv = "the lines of metrics.csv";
constexpr const char* kEvents = "TensorBoard's events";

fs::path lines_path(const RunSection& run) { return fs::path(run.directory) / "metrics.jsonl"; }

/// Returns all numbers of a step with their names in TensorBoard.
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

/// Returns the number of lines in a metrics.csv that are about the steps 1 to `last_step`.
int64_t count_csv_steps(const fs::path& path, int64_t last_step) {
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

/// Renames a metrics.csv that holds more than `known_steps` of the steps up to `last_step`. It will
/// be written anew from metrics.jsonl, which holds only `known_steps` of them.
void keep_fuller_csv(const fs::path& directory, int64_t known_steps, int64_t last_step,
                     const Logger& logger) {
  const fs::path path = directory / "metrics.csv";
  if (count_csv_steps(path, last_step) <= known_steps) return;
  fs::path new_path;
  for (int number = 1; path_exists(new_path = directory / fmt::format("metrics-{}.csv", number));) {
    ++number;
  }
  fs::rename(path, new_path);
  logger.warn("{} is kept as {}", path.string(), new_path.string());
}

}  // namespace

MetricsWriter::MetricsWriter(const RunSection& run, const MetricsStart& start, const Logger& logger)
    : logger_(logger), lines_(lines_path(run), start.last_step, start.unsaved) {
  const fs::path directory = run.directory;
  const int64_t last_step = start.last_step;
  const int64_t missing = missing_steps(lines_path(run), last_step);
  if (missing > 0) {
    logger.warn(
        "{} lacks {} of the {} steps that the run has done: pictures and comparisons lack them too",
        lines_path(run).string(), missing, last_step);
  }
  attempt(csv_, kCsv, [&] { open_csv(directory, last_step - missing, start, run.csv); });
  attempt(events_, kEvents,
          [&] { open_events(directory / "tensorboard", start, run.tensorboard); });
}

void MetricsWriter::open_csv(const fs::path& directory, int64_t known_steps,
                             const MetricsStart& start, bool wanted) {
  const fs::path path = directory / "metrics.csv";
  if (!wanted && !path_exists(path)) return;
  keep_fuller_csv(directory, known_steps, start.last_step, logger_);
  csv_.emplace(path, directory / "metrics.jsonl", start.has_phases);
  if (!wanted) csv_.reset();
}

void MetricsWriter::open_events(const fs::path& folder, const MetricsStart& start, bool wanted) {
  const std::map<int64_t, uint64_t> recorded = recorded_steps(folder);
  if (!wanted && recorded.empty()) return;
  const std::vector<StepMetrics> steps = read_metrics(folder.parent_path() / "metrics.jsonl");
  const auto first_wrong = std::ranges::find_if(steps, [&](const StepMetrics& metrics) {
    const auto found = recorded.find(metrics.step);
    return found == recorded.end() || found->second != hash(summary_message(scalars_of(metrics)));
  });
  const int64_t first_step = first_wrong == steps.end() ? start.last_step + 1 : first_wrong->step;
  const bool discarded = !recorded.empty() && recorded.rbegin()->first >= first_step;
  const bool lacking = first_wrong != steps.end() || start.steps_follow;
  if (!discarded && !(wanted && lacking)) return;
  events_.emplace(folder, first_step);
  if (!wanted) {
    events_->sync();
    events_.reset();
    return;
  }
  for (auto metrics = first_wrong; metrics != steps.end(); ++metrics) {
    events_->append(metrics->step, scalars_of(*metrics));
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
