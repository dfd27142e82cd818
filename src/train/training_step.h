#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/program_inputs.h"
#include "state/optimizer_config.h"
#include "state/parameter_store.h"

namespace tessera {

/// What the forward and backward passes of a step give. Losses are summed over its micro-batches;
/// the means are over the whole global batch.
struct StepLosses {
  double cross_entropy = 0;  ///< mean over target tokens
  double balance = 0;        ///< mean over tokens
  double router_z = 0;       ///< mean over tokens
  int64_t targets = 0;
  int64_t tokens = 0;
  /// The fullest expert's tokens over the balanced number, the largest of any layer; 0 without
  /// experts.
  double expert_load = 0;
  double gradient_norm = 0;  ///< of the main gradients, see gradient_norm()
};

/// Where in its run an update of the weights stands.
struct WeightUpdate {
  int64_t step = 1;          ///< counted from 1
  int64_t steps = 1;         ///< of the whole run, for the learning rate's schedule
  double gradient_norm = 0;  ///< that run() gave, for clipping
};

/// One optimizer step: run(), then update_weights().
class TrainingStep {
 public:
  TrainingStep(const TrainingProgram& training, const ParameterStore& store, Runtime& runtime);

  /// Forward and backward passes: leaves the gradients of the loss over all of `micro_batches` in
  /// the store's main gradients.
  StepLosses run(std::span<const Batch> micro_batches);

  /// Runs the micro-batches once more with every result checked: throws Error naming the first
  /// value that is NaN or infinite, or the parameter whose gradient is. Call it when a loss or a
  /// gradient norm is not finite.
  void report_non_finite(std::span<const Batch> micro_batches);

  /// Clips the main gradients and updates all weights by AdamW. Gives the learning rate.
  double update_weights(const OptimizerConfig& config, const WeightUpdate& update);

  /// Records runs there while it is set.
  void set_trace(Trace* trace) {
    trace_ = trace;
    executor_.set_trace(trace);
  }

 private:
  void fill(const Batch& batch) const;
  void add_losses(StepLosses& losses);

  const TrainingProgram& training_;
  const ParameterStore& store_;
  Executor executor_;
  Frame frame_;
  ProgramInputs inputs_;
  int threads_;
  Trace* trace_ = nullptr;
  std::vector<std::vector<int64_t>> expert_counts_;  // by layer
};

}  // namespace tessera
