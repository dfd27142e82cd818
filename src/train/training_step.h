#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/batch_inputs.h"
#include "plan/programs.h"
#include "state/parameter_store.h"

namespace tessera {

/// What a step gives. Losses are summed over its micro-batches; the means are over the whole global
/// batch.
struct StepLosses {
  double cross_entropy = 0;  ///< mean over target tokens
  double balance = 0;        ///< mean over tokens
  double router_z = 0;       ///< mean over tokens
  int64_t targets = 0;
  int64_t tokens = 0;
  /// The fullest expert's tokens over the balanced number, the largest of any layer; 0 without
  /// experts.
  double expert_load = 0;
};

/// Where in its run an update of the weights stands.
struct WeightUpdate {
  int64_t step = 1;   ///< counted from 1
  int64_t steps = 1;  ///< of the whole run, for the learning rate's schedule
};

/// One optimizer step: accumulate(), then update(). What it gives is read after that.
class TrainingStep {
 public:
  /// Of an executor that runs these programs. All outlive the step.
  TrainingStep(const StepPrograms& programs, Executor& executor, const ParameterStore& store);

  /// Forward and backward passes: leaves the gradients of the loss over all of `micro_batches`, at
  /// most as many as were planned, in the store's main gradients.
  void accumulate(std::span<const Batch> micro_batches);

  /// Clips the main gradients and updates all weights, unless a loss or the gradients' norm is not
  /// finite: then nothing changes. Gives the learning rate.
  double update(const OptimizerConfig& config, const WeightUpdate& update);

  /// Of the last accumulate().
  StepLosses losses() const;
  /// The Euclidean norm of all main gradients, of the last update().
  double gradient_norm() const;

  /// Runs the micro-batches once more with every result checked: throws Error naming the first
  /// value that is NaN or infinite, or the parameter whose gradient is. Call it when a loss or a
  /// gradient norm is not finite.
  void report_non_finite(std::span<const Batch> micro_batches);

  /// Records runs there while it is set.
  void set_trace(Trace* trace) {
    trace_ = trace;
    executor_.set_trace(trace);
  }

 private:
  void run(std::span<const Batch> micro_batches);
  double sum(const std::optional<StepSum>& sum) const;
  double expert_load() const;

  const StepPrograms& programs_;
  const Chunk& chunk_;
  Executor& executor_;
  const ParameterStore& store_;
  BatchInputs inputs_;
  Trace* trace_ = nullptr;
  int64_t targets_ = 0;  // of the last accumulate()
  int64_t tokens_ = 0;
};

}  // namespace tessera
