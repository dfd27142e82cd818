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
#include "pipeline/stage_runner.h"
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
    int gradient_norm = -1, scale = -1;  // the scale of clipping is NaN if nothing was updated
    int muon_measures = -1;
    int first_layer = 0;  // of the first layer's token counts; those of the other layers follow
    int64_t experts = 0;  // per layer; the counts may have one class more, the skipped tokens
  };
  /// Returns the only element of a tensor; 0 if the index is -1.
  double scalar(int index) const;
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

/// One optimizer step. Call forward_backward() with all micro-batches, update() and results(), in
/// this order. On a device these calls do not wait: each one puts work into the device's streams.
class TrainingStep {
 public:
  /// Takes the executor that runs these programs, and the index of the set of passes to use (see
  /// StepPrograms). All arguments must outlive the step.
  TrainingStep(const StepPrograms& programs, Executor& executor, const ParameterStore& store,
               int set = 0);

  /// Sets main gradients and sums to zero, and runs the passes of each micro-batch, in the order of
  /// the stage's list. Afterwards the store's main gradients are this rank's part of the gradients
  /// of the mean loss over all `micro_batches`, or sums of these parts (see set_overlaps()).
  void forward_backward(std::span<const Batch> micro_batches) {
    forward_backward(micro_batches, micro_batches);
  }
  /// Does so for parts of micro-batches: the losses are divided by the targets and tokens of the
  /// whole ones.
  void forward_backward(std::span<const Batch> parts, std::span<const Batch> wholes);

  /// Sets whether the list runs as the programs overlap; it does unless this is called. Then it
  /// also begins sums of gradients over ranks, so the main gradients are those sums, or on the way
  /// to them.
  void set_overlaps(bool overlaps) { overlaps_ = overlaps; }

  /// Sets the number of micro-batches that the run has done, from which later ones are counted.
  void set_micro_batches(int64_t done) { micro_batches_ = done; }

  /// Clips the main gradients and updates all weights. Changes nothing if a loss or the gradient
  /// norm is not finite. Returns the learning rate.
  double update(const OptimizerConfig& config, const WeightUpdate& update);

  /// Returns the results of the last forward_backward() and update(). Call it before the next
  /// forward_backward().
  PendingResults results();

  /// Computes the micro-batches once more, from zero gradients, after a loss or gradient norm that
  /// was not finite. Returns a text that names the first value that is NaN or infinite or, if there
  /// is none, the first parameter whose weight or gradient is; otherwise it says that the loss or
  /// the norm overflowed. All ranks return the same text: that of the rank whose value comes first
  /// in the program's order, because later ones may follow from it. Waits for device and ranks.
  std::string find_non_finite(std::span<const Batch> micro_batches,
                              const RankControl& control = {});

  /// A run of a program whose inputs were written, and which is about to begin.
  struct BegunRun {
    int program = 0;
    int frame = 0;        ///< Action::micro_batch
    int micro_batch = 0;  ///< of the step; 0 for the update
    size_t chunk = 0;     ///< index in the chunks of this rank's stage; 0 for the update
  };
  /// Sets a function that is called before each forward pass and before the update. An empty
  /// function removes it.
  void on_inputs(std::function<void(const BegunRun& run)> written) {
    inputs_written_ = std::move(written);
  }

  /// Records the runs of programs and the entries of the stage's list in `trace`; null ends that.
  void set_trace(Trace* trace) {
    trace_ = trace;
    executor_.set_trace(trace);
    runner_.set_trace(trace);
  }
  /// Returns the entries of the list that were recorded, once the recording has ended.
  std::vector<TimedEntry> take_timed() { return runner_.take_timed(); }

 private:
  /// Sets main gradients and sums to zero, and the gradients of the losses.
  void begin(std::span<const Batch> micro_batches);
  /// Writes the inputs of a forward pass.
  void prepare(const StageAction& action, const Batch& batch);
  const std::vector<Chunk>& chunks() const {
    return programs_.sets[static_cast<size_t>(set_)].chunks;
  }
  std::optional<std::string> non_finite_parameter(int64_t& order) const;

  const StepPrograms& programs_;
  int set_;
  Executor& executor_;
  const ParameterStore& store_;
  StageRunner runner_;
  StageList list_;  // of the last number of micro-batches
  bool overlaps_ = true;
  bool list_overlaps_ = true;        // whether list_ does
  std::vector<BatchInputs> inputs_;  // by chunk
  Trace* trace_ = nullptr;
  std::function<void(const BegunRun& run)> inputs_written_;
  std::function<void(const StageAction& action)> before_action_;
  int64_t targets_ = 0;  // of the last forward_backward()
  int64_t tokens_ = 0;
  int64_t micro_batches_ = 0;  // the number done in the run
};

}  // namespace tessera
