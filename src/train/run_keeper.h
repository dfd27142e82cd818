#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "engine/step_trace.h"
#include "metrics/metrics.h"
#include "model/chunk.h"
#include "program/runtime.h"
#include "train/run_console.h"
#include "train/run_lock.h"
#include "train/run_records.h"
#include "train/shared_run.h"
#include "train/trainer.h"
#include "train/training_state.h"

namespace tessera {

/// The work that the first rank does for all ranks of a run: the console, the records, the folder.
class RunKeeper {
 public:
  /// Keeps references to all arguments. `lock` is held on the run's folder.
  RunKeeper(SharedRun& run, const TrainOptions& options, Runtime& runtime, RunLock& lock,
            const Logger& logger)
      : run_(run),
        runtime_(runtime),
        lock_(lock),
        console_(run.config, options, logger),
        records_(run.config, runtime, logger) {}

  /// Writes the configuration as the run uses it.
  void write_config(const RunConfig& config) const;
  /// Keeps the folder from now on, opens the records for the steps after a position, and writes to
  /// the console what the run trains. Measures the machine's rate of matrix products if it is not
  /// known. Throws Error if the metrics cannot be written, and warns of other records that cannot.
  void begin(const Chunk& chunk, const TrainingPosition& position);
  /// Completes the records of a run that has no step left to do, and returns its report.
  TrainReport nothing_to_do(const TrainingPosition& position);

  /// Completes a step's metrics, in which losses, tokens and seconds are set.
  void complete(StepMetrics& metrics, int64_t tokens_of_step) const;
  /// Throws Error unless the run's folder is still the one that the lock holds (see RunLock). Every
  /// method that writes into the folder calls it first.
  void require_folder() const { lock_.require_held(); }
  /// Writes a step's metrics. Throws Error if the file system refuses.
  void append(const StepMetrics& metrics);
  /// Shows a step in the progress line.
  void show(const StepMetrics& metrics) { console_.show(metrics, run_.last_step()); }

  /// Writes the records through to the disk. Throws Error if the file system refuses.
  void sync() { records_.sync(); }
  /// Returns the lines of metrics that may not be on the disk (see MetricsFile).
  const std::string& unsaved_metrics() const { return records_.unsaved(); }
  /// Removes old checkpoints by the keep rule and draws the plot of losses. Call it after a
  /// checkpoint was saved. Failures are logged.
  void tidy(int64_t parameters, int64_t tokens);
  /// Writes the trace of a step. A failure is logged.
  void write_trace(StepTrace trace, int64_t step);

  RunConsole& console() { return console_; }

 private:
  SharedRun& run_;
  Runtime& runtime_;
  RunLock& lock_;
  RunConsole console_;
  RunRecords records_;
};

}  // namespace tessera
