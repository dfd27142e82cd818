#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "config/phases.h"
#include "metrics/metrics.h"
#include "plan/programs.h"
#include "program/target.h"
#include "train/trainer.h"

namespace tessera {

/// The messages and the progress line that a run writes to standard error.
class RunConsole {
 public:
  /// Keeps references to all arguments, which must outlive it.
  RunConsole(const RunConfig& config, const TrainOptions& options, const Logger& logger)
      : config_(config), options_(options), logger_(logger) {}

  /// Writes what the run is about to train. `flops` are the useful FLOPs of a step of the phase,
  /// and `peak_flops` the FLOP/s of the machine.
  void announce(const StepPrograms& programs, const Target& target, const RunPhase& phase,
                double flops, double peak_flops);
  /// Writes the phase of the next steps. `phases` is the number of phases of the run.
  void announce_phase(const RunPhase& phase, size_t phases);
  /// Shows the progress line for a step of a run that ends after `last_step`.
  void show(const StepMetrics& metrics, int64_t last_step);
  /// Writes how the run ended and, if there are several sources, the tokens of each.
  void finish(const TrainReport& report, const std::vector<SourceMetrics>& sources);

  template <typename... Arguments>
  void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    progress_.clear();
    logger_.info(format, std::forward<Arguments>(arguments)...);
  }
  /// Runs an action whose failure does not stop the run. Logs the first failure of each `what`.
  template <typename Action>
  void attempt(const std::string& what, Action&& action) {
    try {
      action();
    } catch (const std::runtime_error& error) {  // our own errors and those of the file system
      if (!failed_.insert(what).second) return;
      progress_.clear();
      logger_.warn("{}: {}", what, error.what());
    }
  }
  /// Removes the progress line, so that other output can follow.
  void clear() { progress_.clear(); }

 private:
  const RunConfig& config_;
  const TrainOptions& options_;
  const Logger& logger_;
  Progress progress_;
  std::set<std::string> failed_;  // names of the actions that failed
  double step_seconds_ = 0;       // exponential mean of the time between steps
  Stopwatch since_last_step_;
};

}  // namespace tessera
