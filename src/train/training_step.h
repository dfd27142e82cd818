#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/rank_control.h"
#include "engine/snapshot.h"
#include "ops/update/muon_measures.h"
#include "plan/batch_inputs.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "train/step_results.h"

namespace tessera {

/// The results of a step that a device may yet have to compute.
class PendingResults {
 public:
  /// Waits for the step. Throws Error if the device failed.
  StepResults wait() const;

 private:
  friend class TrainingStep;
  /// What the snapshot has, in this order. Sums that a model lacks are -1.
  struct Places {
    int cross_entropy = -1, balance = -1, router_z = -1;
    int gradient_norm = -1, scale = -1;
    int muon_measures = -1;
    int layers = 0;       // the first of the layers' token counts, which are the last
    int64_t experts = 0;  // of a layer; its counts may have a further class, the skipped tokens
  };
  double number(int place) const;
  double expert_load() const;
  std::optional<double> skipped() const;
  /// None without Muon.
  std::optional<MuonMeasures> muon_measures() const;

  Snapshot snapshot_;
  Places places_;
  int64_t targets_ = 0;
  int64_t tokens_ = 0;
};

/// The place of a weight update in its run.
struct WeightUpdate {
  int64_t step = 1;          ///< counted from 1
  int64_t steps = 1;         ///< of the learning rate's course
  int64_t course_begin = 0;  ///< the steps before the course (see RunPhase)
};

/// One optimizer step: accumulate(), update(), then results(). On a device nothing here waits: each
/// call puts work into its streams.
class TrainingStep {
 public:
  /// Takes an executor that runs these programs, of which it runs a set of passes. All arguments
  /// must outlive the step.
  TrainingStep(const StepPrograms& programs, Executor& executor, const ParameterStore& store,
               int set = 0);

  /// Runs the forward and backward passes. Leaves the gradients of the loss over all
  /// `micro_batches` in the store's main gradients.
  void accumulate(std::span<const Batch> micro_batches);
  /// The same in two parts: sets gradients and sums to zero for a step of these micro-batches, and
  /// adds one of them.
  void begin(std::span<const Batch> micro_batches);
  void add(const Batch& batch);

  /// Says how many micro-batches the run has done. Those that are added from then on are counted.
  void set_micro_batches(int64_t done) { micro_batches_ = done; }

  /// Clips the main gradients and updates all weights. Changes nothing if a loss or the gradients'
  /// norm is not finite. Returns the learning rate.
  double update(const OptimizerConfig& config, const WeightUpdate& update);

  /// The results of the last accumulate() and update(). Call it before the next ones.
  PendingResults results();

  /// Accumulates the micro-batches once more, from zeros, and checks every result. Says which value
  /// is the first that is NaN or infinite, or which parameter's weight or gradient is. Of several
  /// ranks, all say the same: the earliest in the order of the program, and its rank. What other
  /// ranks got from that one comes later. Call it when a loss or a gradient norm is not finite.
  std::string find_non_finite(std::span<const Batch> micro_batches,
                              const RankControl& control = {});

  /// Is called after the inputs of a program were written, with the program's number, before it
  /// runs. An empty function ends that.
  void on_inputs(std::function<void(int program)> written) { written_ = std::move(written); }

  /// Records runs in `trace` while it is set.
  void set_trace(Trace* trace) {
    trace_ = trace;
    executor_.set_trace(trace);
  }

 private:
  std::optional<std::string> non_finite_parameter(int64_t& number) const;

  const StepPrograms& programs_;
  const Chunk& chunk_;
  int passes_;  // the number of the chunk's program
  Executor& executor_;
  const ParameterStore& store_;
  BatchInputs inputs_;
  Trace* trace_ = nullptr;
  std::function<void(int program)> written_;
  int64_t targets_ = 0;  // of the last accumulate()
  int64_t tokens_ = 0;
  int64_t micro_batches_ = 0;  // done in this run
};

}  // namespace tessera
