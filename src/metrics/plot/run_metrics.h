#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {

/// The beginning of a phase of a run.
struct PhaseStart {
  size_t row = 0;    ///< the row of its first step
  std::string name;  ///< "phase 2" if the run gave it no name
};

/// All numbers of one run's metrics.jsonl, also those that other versions of Tessera wrote. A
/// number in an object within a line is named by its path, as in "sources/web/tokens".
class RunMetrics {
 public:
  /// Reads a run's folder or one metrics file. A line replaces earlier lines of its step and later
  /// steps, as in the concatenated files of a run and its continuation. Throws Error when there are
  /// no metrics or a line is not valid.
  explicit RunMetrics(const fs::path& run_or_file);

  /// Returns the name of the folder, or of the file if it is not called metrics.jsonl.
  const std::string& name() const { return name_; }
  const fs::path& file() const { return file_; }
  /// Returns the steps in ascending order.
  const std::vector<int64_t>& steps() const { return steps_; }
  /// Returns the phases that begin after the first of these steps.
  std::vector<PhaseStart> phase_starts() const;
  /// Returns the names of all numbers but the step, sorted.
  std::vector<std::string> metrics() const;
  bool has(const std::string& metric) const { return columns_.contains(metric); }
  /// Returns the number at steps()[row]: NaN if it was not finite, nothing if the line has none.
  std::optional<double> at(const std::string& metric, size_t row) const;
  /// Returns the number of steps that have that metric.
  size_t count(const std::string& metric) const;

 private:
  /// Adds a row. Removes the rows of this step and later ones.
  void add_step(int64_t step);

  std::string name_;
  fs::path file_;
  std::vector<int64_t> steps_;
  // By metric, the number of each row. A column ends with the last row that has a number.
  std::map<std::string, std::vector<std::optional<double>>> columns_;
  std::map<int64_t, std::string> phase_names_;  // by number
};

/// Returns the metrics of several runs. Throws Error also when two paths name the same file.
std::vector<RunMetrics> read_runs(const std::vector<std::string>& paths);

}  // namespace tessera
