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

/// What one rank does for all of a run: the console, the records, the folder. It is the first rank.
class RunKeeper {
 public:
  /// Refers to all of them. `lock` is held on the run's folder.
  RunKeeper(SharedRun& run, const TrainOptions& options, Runtime& runtime, RunLock& lock,
            const Logger& logger)
      : run_(run),
        runtime_(runtime),
        lock_(lock),
        console_(run.config, options, logger),
        records_(run.config, runtime, logger) {}

  /// Writes the configuration as the run uses it.
  void write_config(const RunConfig& config) const;
  /// Keeps the folder from now on, and opens the records for the steps after a position. Measures
  /// the machine's rate of products if it is not known, and says what begins. Throws Error when the
  /// metrics cannot be written. Warns of other records that cannot.
  void begin(const Chunk& chunk, const TrainingPosition& position);
  /// Returns what a run reports that has no step left to do. Completes the records.
  TrainReport nothing_to_do(const TrainingPosition& position);

  /// Completes a step's metrics, which have its losses, tokens and seconds.
  void complete(StepMetrics& metrics, int64_t tokens_of_step) const;
  /// Throws Error unless the run's folder is still the one that it holds (see RunLock). All that
  /// writes there calls it first.
  void require_folder() const { lock_.require_held(); }
  /// Writes a step. Throws Error when the file system refuses.
  void append(const StepMetrics& metrics);
  void show(const StepMetrics& metrics) { console_.show(metrics, run_.last_step()); }

  /// Brings the records to the disk. Throws Error when the file system refuses.
  void sync() { records_.sync(); }
  /// The lines of metrics that may not be on the disk (see MetricsFile).
  const std::string& unsaved_metrics() const { return records_.unsaved(); }
  /// After a checkpoint: removes old ones by the keep rule, draws the losses. A failure is
  /// reported.
  void tidy(int64_t parameters, int64_t tokens);
  /// Writes the trace of a step; a failure is reported.
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
