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
#include "model/chunk.h"
#include "program/target.h"
#include "train/trainer.h"

namespace tessera {

/// What a run says on standard error: a progress line, and messages above it.
class RunConsole {
 public:
  /// Refers to all three, which must outlive it.
  RunConsole(const RunConfig& config, const TrainOptions& options, const Logger& logger)
      : config_(config), options_(options), logger_(logger) {}

  /// Says what begins. `flops` are the useful ones of a step of the phase, `peak_flops` the
  /// machine's per second.
  void announce(const Chunk& chunk, const Target& target, const RunPhase& phase, double flops,
                double peak_flops);
  /// Says which of so many phases the next steps are of.
  void announce_phase(const RunPhase& phase, size_t phases);
  /// Says where a resumed run goes on.
  void announce_position(int64_t step, int64_t tokens);
  /// Says that a source with so many tokens begins to repeat.
  void announce_repetition(const std::string& source, int64_t tokens);
  /// Shows the progress line for a step of a run that ends after `last_step`.
  void show(const StepMetrics& metrics, int64_t last_step);
  void nothing_to_do(int64_t step, int64_t last_step);
  /// Says how the run ended and, of a mix, what each source gave.
  void finish(const TrainReport& report, const std::vector<SourceMetrics>& sources);

  /// Writes a message.
  template <typename... Arguments>
  void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    progress_.clear();
    logger_.info(format, std::forward<Arguments>(arguments)...);
  }
  /// Runs an action that a run can do without. A failure is reported once.
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
  std::set<std::string> failed_;  // the optional actions that failed
  double seconds_each_ = 0;       // running mean of the time between steps
  Stopwatch since_last_;
};

}  // namespace tessera
