#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/log.h"
#include "comm/processes.h"
#include "config/run_config.h"
#include "data/loader.h"
#include "plan/run_target.h"

namespace tessera {

/// Options of a call of train() that are not part of the configuration.
struct TrainOptions {
  int ranks = 1;  ///< threads of this process, which share the work as [parallel] says
  /// The processes of the run, of which this one is a rank. Null if the run is this process alone.
  /// If it is set, `ranks` must be 1.
  Processes* processes = nullptr;
  bool resume = false;   ///< continue from the run's newest complete checkpoint
  bool progress = true;  ///< show a progress line on standard error
  /// Called on each rank before each step. If it throws, the run ends.
  std::function<void(int rank, int64_t step)> before_step = {};
  /// Called on each rank with the batches of each step, before they are computed.
  std::function<void(int rank, int64_t step, std::span<const Batch> batches)> on_batches = {};
  /// Called on each rank before each batch of an evaluation, with the number of the batch.
  std::function<void(int rank, int64_t batch)> before_evaluation_batch = {};
  /// Opens the run's device for one of the machine's ranks; null for the processor.
  std::function<std::unique_ptr<Accelerator>(const RunConfig&, const LocalRank&)> open_accelerator =
      open_device;
};

/// The outcome of a call of train().
struct TrainReport {
  int64_t step = 0;  ///< the number of steps since the start of the run
  double loss = 0;   ///< of the last step; NaN if this call did no step and metrics.jsonl lacks it
  bool interrupted = false;  ///< true if a signal ended the run, after saving
};

/// Trains as the configuration says, on one or several ranks, and writes run.directory:
/// config.toml, metrics.jsonl, loss.svg, checkpoints/. While an InterruptGuard exists, a signal
/// ends the run after the current step, with a checkpoint saved; an evaluation is stopped before
/// its next batch. Throws Error on anything that a user can correct; if the run does not fit the
/// memory of its device, it does so before anything is written. Throws Error on the first loss or
/// gradient norm that is not finite, with the step and the value.
TrainReport train(const RunConfig& config, const TrainOptions& options, const Logger& logger);

}  // namespace tessera
