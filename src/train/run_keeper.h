#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "metrics/metrics_writer.h"
#include "pipeline/gather_traces.h"
#include "plan/programs.h"
#include "program/runtime.h"
#include "train/run_console.h"
#include "train/run_lock.h"
#include "train/shared_run.h"
#include "train/trainer.h"
#include "train/training_state.h"

namespace tessera {

/// The work that the first rank does for all ranks: the console, and in the run's folder the
/// configuration, the records (metrics.jsonl, loss.svg, trace.json) and the pruning of checkpoints.
class RunKeeper {
 public:
  /// Keeps references to all arguments. `lock` is held on the run's folder.
  RunKeeper(SharedRun& run, const TrainOptions& options, Runtime& runtime, RunLock& lock,
            const Logger& logger)
      : run_(run),
        runtime_(runtime),
        lock_(lock),
        logger_(logger),
        console_(run.config, options, logger) {}

  /// Writes the configuration as the run uses it.
  void write_config(const RunConfig& config) const;
  /// Keeps the folder however the run ends, opens the metrics for the steps after a position, and
  /// tells the console what the run trains. Measures the rate of matrix products if it is not
  /// known. Throws Error if the metrics cannot be written, and warns of other records that cannot.
  void begin(const StepPrograms& programs, const TrainingPosition& position);
  /// Completes the metrics of a run that has no step left to do, and returns its report.
  TrainReport nothing_to_do(const TrainingPosition& position);

  /// Completes a step's metrics, in which losses, tokens and seconds are set.
  void complete(StepMetrics& metrics, int64_t tokens_of_step) const;
  /// Throws Error unless the run's folder is still the one that the lock holds (see RunLock).
  /// Methods that write into the folder call it first.
  void require_folder() const { lock_.require_held(); }
  /// Appends a step to the metrics. Throws Error if the file system refuses.
  void append(const StepMetrics& metrics);
  void show(const StepMetrics& metrics) { console_.show(metrics, run_.last_step()); }

  /// Writes the metrics through to the disk. Throws Error if the file system refuses.
  void sync() { metrics_->sync(); }
  /// Returns the lines of metrics that may not be on the disk (see MetricsFile).
  const std::string& unsaved_metrics() const { return metrics_->unsaved(); }
  /// Removes old checkpoints by the keep rule and draws the plot of losses, after a checkpoint was
  /// saved. Failures are logged.
  void prune_and_plot(int64_t parameters, int64_t tokens);
  /// Writes the file of a step's trace, and says which ranks it leaves out. A failure is logged.
  void write_trace(const GatheredTraces& gathered, int64_t step);

  RunConsole& console() { return console_; }

 private:
  MetricsStart metrics_start(const TrainingPosition& position) const;
  double recorded_loss(int64_t step) const;
  void plot(int64_t parameters, int64_t tokens) const;
  fs::path file(const char* name) const { return fs::path(run_.config.run.directory) / name; }

  SharedRun& run_;
  Runtime& runtime_;
  RunLock& lock_;
  const Logger& logger_;
  RunConsole console_;
  std::optional<MetricsWriter> metrics_;  // from begin() on
};

}  // namespace tessera
