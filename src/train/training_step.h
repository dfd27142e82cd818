#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/rank_control.h"
#include "engine/device_transfers.h"
#include "ops/update/muon_measures.h"
#include "plan/batch_inputs.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "train/step_results.h"

namespace tessera {

/// The results of a step, which a device may not have computed yet.
class PendingResults {
 public:
  /// Waits for the step and returns its results. Throws Error if the device failed.
  StepResults wait() const;

 private:
  friend class TrainingStep;
  /// Indices of the snapshot's tensors. A sum that the model lacks has the index -1.
  struct Indices {
    int cross_entropy = -1, balance = -1, router_z = -1;
    int gradient_norm = -1, scale = -1;
    int muon_measures = -1;
    int layers = 0;       // of the first layer's token counts; those of the other layers follow
    int64_t experts = 0;  // per layer; the counts may have one class more, the skipped tokens
  };
  double number(int index) const;
  double expert_load() const;
  std::optional<double> skipped() const;
  std::optional<MuonMeasures> muon_measures() const;

  Snapshot snapshot_;
  Indices indices_;
  int64_t targets_ = 0;
  int64_t tokens_ = 0;
};

/// The position of a weight update in its run and in its learning rate schedule.
struct WeightUpdate {
  int64_t step = 1;          ///< the number of the step in the run, from 1
  int64_t steps = 1;         ///< the length of the learning rate schedule
  int64_t course_begin = 0;  ///< the number of steps before the schedule (see RunPhase)
};

/// One optimizer step: forward_backward() of all micro-batches, update(), then results(). The first
/// is begin(), and forward_backward() of each micro-batch. On a device these calls do not wait:
/// each one puts work into the device's streams.
class TrainingStep {
 public:
  /// Takes the executor that runs these programs, and the index of the set of passes to use (see
  /// StepPrograms). All arguments must outlive the step.
  TrainingStep(const StepPrograms& programs, Executor& executor, const ParameterStore& store,
               int set = 0);

  /// Runs the forward and backward passes of all micro-batches. Afterwards the store's main
  /// gradients are those of the loss over all `micro_batches`.
  void forward_backward(std::span<const Batch> micro_batches);
  /// Sets main gradients and sums to zero, for a step of these micro-batches.
  void begin(std::span<const Batch> micro_batches);
  /// Runs the forward and backward passes of one micro-batch, which add to gradients and sums.
  void forward_backward(const Batch& batch);

  /// Sets the number of micro-batches that the run has done. Later ones are counted from there.
  void set_micro_batches(int64_t done) { micro_batches_ = done; }

  /// Clips the main gradients and updates all weights. Changes nothing if a loss or the gradient
  /// norm is not finite. Returns the learning rate.
  double update(const OptimizerConfig& config, const WeightUpdate& update);

  /// Returns the results of the last forward_backward() and update(). Call it before the next
  /// begin().
  PendingResults results();

  /// Computes the micro-batches once more, from zero gradients, after a loss or gradient norm that
  /// is not finite. Returns a text that names the first value that is NaN or infinite or, if there
  /// is none, the first parameter whose weight or gradient is. All ranks return the same text: that
  /// of the rank whose value comes first in the program's order, because later ones may follow from
  /// it. Waits for the device and for all ranks.
  std::string find_non_finite(std::span<const Batch> micro_batches,
                              const RankControl& control = {});

  /// Sets a function that is called with the number of a program after its inputs were written,
  /// before it runs. An empty function removes it.
  void on_inputs(std::function<void(int program)> written) { written_ = std::move(written); }

  /// Records the runs of programs in `trace`; null ends that.
  void set_trace(Trace* trace) {
    trace_ = trace;
    executor_.set_trace(trace);
  }

 private:
  std::optional<std::string> non_finite_parameter(int64_t& number) const;

  const StepPrograms& programs_;
  const Chunk& chunk_;
  int passes_;  // the number of the chunk's program in the list
  Executor& executor_;
  const ParameterStore& store_;
  BatchInputs inputs_;
  Trace* trace_ = nullptr;
  std::function<void(int program)> written_;
  int64_t targets_ = 0;  // of the last forward_backward()
  int64_t tokens_ = 0;
  int64_t micro_batches_ = 0;  // the number done in this run
};

}  // namespace tessera
