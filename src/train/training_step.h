#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"
#include "state/optimizer_config.h"
#include "state/parameter_store.h"

namespace tessera {

/// The inputs of a training program, in memory from the pool.
class ProgramInputs {
 public:
  /// Takes the memory and binds it in `frame`.
  ProgramInputs(const TrainingProgram& training, MemoryPool& pool, Frame& frame);
  /// Copies a batch of the program's size in.
  void fill(const Batch& batch) const;
  /// Sets the gradients of the losses: one over each count (see TrainingProgram).
  void set_seeds(int64_t global_targets, int64_t global_tokens) const;

 private:
  Tensor tokens_, targets_, positions_, document_starts_, target_seed_, token_seed_;
};

/// Losses summed over the micro-batches of a step; the means are over the whole global batch.
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

/// Forward and backward passes of one optimizer step.
class TrainingStep {
 public:
  TrainingStep(const TrainingProgram& training, const ParameterStore& store, Context& context);

  /// Adds the gradients of the loss over all of `micro_batches` into the store's main gradients,
  /// which the caller has set to zero.
  StepLosses run(std::span<const Batch> micro_batches);

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
  void fill(const Batch& batch) const;
  void add_losses(StepLosses& losses);

  const TrainingProgram& training_;
  const ParameterStore& store_;
  Executor executor_;
  Frame frame_;
  ProgramInputs inputs_;
  Trace* trace_ = nullptr;
  std::vector<std::vector<int64_t>> expert_counts_;  // by layer
};

/// Where in its run an update of the weights stands.
struct WeightUpdate {
  int64_t step = 1;          ///< counted from 1
  int64_t steps = 1;         ///< of the whole run, for the learning rate's schedule
  double gradient_norm = 0;  ///< of the main gradients, see gradient_norm(), for clipping
};

/// The last part of an optimizer step: clips the main gradients and updates all weights by AdamW.
/// Gives the learning rate.
double update_weights(const ParameterStore& store, const OptimizerConfig& config,
                      const WeightUpdate& update, int threads);

}  // namespace tessera
