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
  std::vector<double> seconds;  ///< of each measured step
  /// Of each measured step the forward and backward passes of all its micro-batches, where the host
  /// computes them. A device is not waited for between the passes and the update.
  std::vector<double> forward_backward_seconds = {};
  int64_t tokens = 0;  ///< per step
  double flops = 0;    ///< useful FLOPs of a step's matrix products
  int64_t parameters = 0;
  int64_t active_parameters = 0;  ///< those that one token uses
  int64_t arena_bytes = 0;        ///< weights, states, inputs and activations
  int64_t peak_memory_bytes = 0;  ///< of the process, read after the steps
  std::vector<double> losses;     ///< of all steps, with the warm-up first
  double expert_load = 0;         ///< of the last step: see StepResults
  /// The share of the measured steps in which the device waited for the host, if one step was in
  /// flight while the next was issued.
  std::optional<double> idle_share = {};
  bool prepared_tokens = false;  ///< whether the tokens were those of prepared data
};

/// Returns the micro-batches of one step, with tokens drawn from the whole vocabulary.
std::vector<Batch> random_batches(const RunConfig& config);

/// The tokens of measured steps.
enum class StepTokens {
  random,   ///< one document a sequence, the same in every step
  prepared  ///< those that training would read, from the beginning
};

/// Runs optimizer steps as train() does: forward and backward passes of all micro-batches, gradient
/// norm, clipping, the optimizer. There is no evaluation, metrics or run folder. The weights are
/// the configuration's initial ones, or those of checkpoint.initial. On a device one step is in
/// flight while the next one is issued, as in training, and a step's time is that between its
/// results and those of the step before. Where another program takes its turn between runs, every
/// step is waited for. Takes a resolved configuration of one phase and a runtime for it. Throws
/// Error when it does not fit into memory, cannot run on the device, or when a loss or gradient
/// norm is not finite.
StepMeasurement measure_step(const RunConfig& config, const Repeats& repeats, Runtime& runtime,
                             StepTokens tokens = StepTokens::random);

/// Runs one such step of each phase on the configuration's device, then measures the algorithms of
/// each matrix product in it, and the libraries of each product of groups, and returns the fastest.
/// `progress` is called before each product with its sizes and the number of those done and of all.
/// Throws Error for a device that has no algorithms to choose from.
TunedTable tune_step_products(
    const RunConfig& config, const TuningBudget& budget,
    const std::function<void(const std::string& sizes, size_t done, size_t all)>& progress);

/// Return the measurement as a JSON object on one line, with the name of the phase if there is one,
/// and as lines of text.
std::string step_json(const StepMeasurement& measurement, const MeasuredOn& on,
                      const std::string& phase = "");
std::string step_text(const StepMeasurement& measurement, const MeasuredOn& on);

}  // namespace tessera
