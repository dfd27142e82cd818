#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "data/loader.h"
#include "hardware/tuned_products_file.h"
#include "ops/gemm/device_gemm.h"
#include "ops/moe/device_grouped.h"
#include "plan/blocks/measurement_report.h"
#include "plan/blocks/repeats.h"

namespace tessera {

/// Measurements of whole optimizer steps of a configuration.
struct StepMeasurement {
  std::vector<double> seconds;  ///< the time of each measured step
  /// The time of the forward and backward passes of all micro-batches, for each measured step;
  /// empty on a device, where the host does not wait between the passes and the update.
  std::vector<double> forward_backward_seconds = {};
  int64_t tokens = 0;  ///< per step
  double flops = 0;    ///< useful FLOPs of a step's matrix products
  int64_t parameters = 0;
  int64_t active_parameters = 0;  ///< used by one token
  int64_t arena_bytes = 0;        ///< for weights, states, inputs and activations
  int64_t peak_memory_bytes = 0;  ///< of the process, read after the steps
  std::vector<double> losses;     ///< of all steps, warm-up included
  double expert_load = 0;         ///< of the last step: see StepResults
  /// The fraction of the measured time in which the device waited for the host; only measured if
  /// one step was in flight while the next was issued.
  std::optional<double> idle_share = {};
  bool prepared_tokens = false;  ///< true if the tokens were read from prepared data
};

/// Returns the micro-batches of one step, with tokens drawn from the whole vocabulary.
std::vector<Batch> random_batches(const RunConfig& config);

/// The tokens of measured steps.
enum class StepTokens {
  random,   ///< the same in every step, with one document in each sequence
  prepared  ///< the tokens of the data, as training reads them from the beginning
};

/// Runs optimizer steps as train() does, without evaluation, metrics and run folder, and measures
/// them. The weights are the configuration's initial ones, or those of checkpoint.initial. On a
/// device one step is in flight while the next one is issued, as in training; a step's time is then
/// the time from the results of the step before to its own. If `repeats` lets another program take
/// turns with this one, every step is waited for. Takes a resolved configuration of one phase and a
/// runtime for it. Throws Error if the run asks for several ranks, does not fit into memory or
/// cannot run on the device, or if a loss or gradient norm is not finite.
StepMeasurement measure_step(const RunConfig& config, const Repeats& repeats, Runtime& runtime,
                             StepTokens tokens = StepTokens::random);

/// Runs one step of each phase on the configuration's device, measures the algorithms of each
/// matrix product in it and the libraries of each grouped product, and returns the fastest. Calls
/// `progress` before each product with its sizes, the number of products done and the total.
/// Throws Error for a device that has no algorithms to choose from.
TunedTable tune_step_products(
    const RunConfig& config, const TuningBudget& budget,
    const std::function<void(const std::string& sizes, size_t done, size_t total)>& progress);

/// Returns the measurement as a JSON object on one line, with the phase's name if it has one.
std::string step_json(const StepMeasurement& measurement, const MeasuredOn& on,
                      const std::string& phase = "");
std::string step_text(const StepMeasurement& measurement, const MeasuredOn& on);

}  // namespace tessera
