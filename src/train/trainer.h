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

struct TrainOptions {
  int ranks = 1;  ///< threads of this process, which share the work as [parallel] says
  /// Of which this one is one; null if there are no others. Then `ranks` is 1.
  Processes* processes = nullptr;
  bool resume = false;   ///< continue from the run's newest complete checkpoint
  bool progress = true;  ///< show a progress line on standard error
  /// Called on each rank before each of its steps. What it throws ends the run.
  std::function<void(int rank, int64_t step)> before_step = {};
  /// Told each rank's batches of each of its steps, before they are computed.
  std::function<void(int rank, int64_t step, std::span<const Batch> batches)> on_batches = {};
  /// Called on each rank before each batch of an evaluation, which it counts.
  std::function<void(int rank, int64_t batch)> before_evaluation_batch = {};
  /// Opens the run's device for one of the machine's ranks; null for the processor.
  std::function<std::unique_ptr<Accelerator>(const RunConfig&, const DevicePlace&)> open =
      open_device;
};

struct TrainReport {
  int64_t step = 0;  ///< steps done since the start of the run
  double loss = 0;   ///< of the last step; NaN if it was done before and metrics.jsonl lacks it
  bool interrupted = false;  ///< ended by a signal, after saving
};

/// Trains as the configuration says, on one or several ranks, and writes run.directory:
/// config.toml, metrics.jsonl, loss.svg, checkpoints/. While an InterruptGuard lives, a signal ends
/// the run after the current step, with a checkpoint saved; an evaluation is left at its next
/// batch. Throws Error on anything that a user can correct, and before anything is written if the
/// run does not fit the memory of its device. Throws Error on the first loss or gradient norm that
/// is not finite, with the step and the value.
TrainReport train(const RunConfig& config, const TrainOptions& options, const Logger& logger);

}  // namespace tessera
