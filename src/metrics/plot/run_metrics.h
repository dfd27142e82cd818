#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace tessera {

/// All numbers of one run's metrics.jsonl, those of later and earlier versions included: what an
/// object within a line holds is called by its path, as in "sources/web/tokens".
class RunMetrics {
 public:
  /// Reads a run's folder or one metrics file. Where steps go back, as in the concatenated files of
  /// a run and its continuation, the later lines count. Throws Error when there are no metrics or
  /// when a line is not valid.
  explicit RunMetrics(const fs::path& run_or_file);

  /// The folder's name, or that of a file which is not called metrics.jsonl.
  const std::string& name() const { return name_; }
  const fs::path& file() const { return file_; }
  /// Growing.
  const std::vector<int64_t>& steps() const { return steps_; }
  /// What there is besides the step, sorted.
  std::vector<std::string> metrics() const;
  bool has(const std::string& metric) const { return columns_.contains(metric); }
  /// The number at steps()[row], NaN where it was not finite, nothing where the line has none.
  std::optional<double> at(const std::string& metric, size_t row) const;
  /// At how many steps there is that number.
  size_t count(const std::string& metric) const;

 private:
  void add_step(int64_t step);

  std::string name_;
  fs::path file_;
  std::vector<int64_t> steps_;
  std::map<std::string, std::vector<std::optional<double>>> columns_;  // may end early
};

}  // namespace tessera
