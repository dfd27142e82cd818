#include "metrics/plot/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/links.h"
#include "metrics/metrics_lines.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kMostLevels = 8;  // of objects in a line

/// Returns the metrics file of a run's folder, or the file itself.
fs::path metrics_file(const fs::path& run_or_file) {
  if (!path_exists(run_or_file)) {
    throw Error("{} does not exist{}; expected a run's folder or its metrics.jsonl",
                run_or_file.string(), dangling_link_text(run_or_file));
  }
  if (!is_folder(run_or_file)) return run_or_file;
  fs::path file = run_or_file / "metrics.jsonl";
  if (!path_exists(file)) {
    throw Error("{} holds no metrics.jsonl; expected a folder that `tessera train` wrote",
                run_or_file.string());
  }
  return file;
}

std::string run_name(const fs::path& file) {
  if (file.filename() != "metrics.jsonl") return file.filename().string();
  return canonical_path(file).parent_path().filename().string();
}

/// Passes every number of an object to `visit`, named by its path. A null passes as NaN.
void visit_numbers(const OrderedJson& object, const std::string& prefix, int depth,
                   const std::function<void(const std::string&, double)>& visit) {
  if (depth > kMostLevels) throw Error("objects nested deeper than {} levels", kMostLevels);
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      visit_numbers(value, prefix + key + "/", depth + 1, visit);
    } else if (value.is_number()) {
      visit(prefix + key, value.get<double>());
    } else if (value.is_null()) {
      visit(prefix + key, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

}  // namespace

RunMetrics::RunMetrics(const fs::path& run_or_file) : file_(metrics_file(run_or_file)) {
  name_ = run_name(file_);
  visit_metrics_lines(file_, [&](const OrderedJson& line, std::string_view /*text*/) {
    add_step(line["step"]);
    const size_t row = steps_.size() - 1;
    if (line.contains("phase") && line.contains("phase_name")) {
      phase_names_[whole_member(line, "phase")] = text_member(line, "phase_name");
    }
    visit_numbers(line, "", 1, [&](const std::string& metric, double value) {
      if (metric == "step") return;
      auto& column = columns_[metric];
      column.resize(row + 1);
      column[row] = value;
    });
  });
  if (steps_.empty()) throw Error("{} holds no step yet", file_.string());
}

void RunMetrics::add_step(int64_t step) {
  const auto first_replaced = std::lower_bound(steps_.begin(), steps_.end(), step);
  if (first_replaced != steps_.end()) {
    steps_.erase(first_replaced, steps_.end());
    for (auto& [name, column] : columns_) column.resize(std::min(column.size(), steps_.size()));
  }
  steps_.push_back(step);
}

std::vector<PhaseStart> RunMetrics::phase_starts() const {
  std::vector<PhaseStart> starts;
  std::optional<double> previous;
  for (size_t row = 0; row < steps_.size(); ++row) {
    const std::optional<double> phase = at("phase", row);
    if (row > 0 && phase && std::isfinite(*phase) && phase != previous) {
      const auto number = static_cast<int64_t>(*phase);
      const auto named = phase_names_.find(number);
      starts.push_back(
          {row, named == phase_names_.end() ? fmt::format("phase {}", number) : named->second});
    }
    previous = phase;
  }
  return starts;
}

std::vector<std::string> RunMetrics::metrics() const {
  std::vector<std::string> names;
  for (const auto& [name, column] : columns_) names.push_back(name);
  return names;
}

std::optional<double> RunMetrics::at(const std::string& metric, size_t row) const {
  const auto column = columns_.find(metric);
  if (column == columns_.end() || row >= column->second.size()) return std::nullopt;
  return column->second[row];
}

size_t RunMetrics::count(const std::string& metric) const {
  const auto column = columns_.find(metric);
  if (column == columns_.end()) return 0;
  return static_cast<size_t>(std::count_if(column->second.begin(), column->second.end(),
                                           [](const auto& value) { return value.has_value(); }));
}

std::vector<RunMetrics> read_runs(const std::vector<std::string>& paths) {
  std::vector<RunMetrics> runs;
  for (const std::string& path : paths) {
    runs.emplace_back(path);
    for (size_t i = 0; i + 1 < runs.size(); ++i) {
      std::error_code code;
      if (fs::equivalent(runs[i].file(), runs.back().file(), code)) {
        throw Error("{} is given twice", runs.back().file().string());
      }
    }
  }
  return runs;
}

}  // namespace tessera
