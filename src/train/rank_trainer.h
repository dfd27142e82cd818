#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/affinity.h"
#include "base/progress.h"
#include "comm/rank_control.h"
#include "inference/evaluate.h"
#include "plan/step_plan.h"
#include "train/replica_check.h"
#include "train/run_keeper.h"
#include "train/run_loader.h"
#include "train/shared_cores.h"
#include "train/shared_run.h"
#include "train/trainer.h"
#include "train/training_state.h"
#include "train/training_step.h"

namespace tessera {

/// The training loop of one rank. All ranks make the same decisions (see agree()), so that no rank
/// waits for another that has ended. If a rank throws, the run ends.
class RankTrainer {
 public:
  /// Takes the rank's plan. `keeper` is null but on the first rank. Keeps references to the others.
  RankTrainer(const SharedRun& run, StepPlan plan, SharedCores cores, Runtime& runtime,
              const RankControl& control, RunKeeper* keeper, const Logger& logger);

  /// Runs the loop to its end and returns what the run reports.
  TrainReport run(const TrainOptions& options);

 private:
  /// A step that was issued: its work was given to the executor, and its results are not read yet.
  struct IssuedStep {
    StepMetrics metrics;  // only the number and learning rate so far
    std::vector<Batch> batches;
    LoaderState data;  // the position after its batches
    PendingResults results;
  };

  /// Returns the phase of the step that is issued next or was issued last.
  const RunPhase& phase() const { return run_.phases[loader_.phase()]; }
  void use_programs();
  void enter_phase_of(int64_t step);

  /// Sets the weights and the position: from a checkpoint, from initial weights or from the seed.
  void start(bool resume);

  bool saves_after(int64_t step) const;
  bool evaluates_after(int64_t step) const;
  bool checks_replicas_at(int64_t step) const;
  bool finishes_at_once(int64_t step) const;
  void issue(int64_t step, Trace* trace);
  void watch_inputs(int64_t step);
  void forward_backward(std::span<const Batch> batches);
  std::optional<std::string> attempt_work(const std::function<void()>& action);
  [[noreturn]] void end_before_step(const std::string& failure);
  void finish_step();
  void agree(TrainReport& report);
  /// Returns this rank's micro-batches of the next step. A failure ends the run, after a save.
  std::vector<Batch> next_batches(Trace* trace);
  void traced_step(int64_t step);

  void report(StepMetrics& metrics, const StepResults& results);
  /// Adds the held-out losses to the metrics, if the run evaluates after their step.
  void evaluate(StepMetrics& metrics);
  void announce_repetition(const LoaderState& before, const LoaderState& now);
  [[noreturn]] void report_non_finite(const StepMetrics& metrics, std::span<const Batch> batches);

  void require_finite_weights() const;
  template <typename Check>
  std::optional<std::string> unequal_copies(int64_t step, Check&& check) const;
  void require_equal_copies(int64_t step) const;
  /// Saves a checkpoint of the last finished step. Then throws Error if the run must end.
  void save();
  std::string resume_advice() const;

  /// Runs an action without which the run cannot continue. If it throws Error, the run ends after a
  /// checkpoint of the step was saved.
  template <typename Action>
  void end_run_on_failure(Action&& action) {
    try {
      action();
    } catch (const Error& error) {
      if (!ending_) ending_ = error.what();
    }
  }

  const SharedRun& run_;
  RunConfig config_;
  Runtime& runtime_;
  const RankControl& control_;
  RunKeeper* keeper_;  // null on all ranks but the first
  const Logger& logger_;
  int rank_;
  BoundTeam team_;
  StepPrograms programs_;
  Executor executor_;
  ParameterStore store_;
  std::optional<TrainingStep> step_;  // the step of the current phase
  const RunData& data_;
  RunLoader loader_;
  std::optional<Evaluator> evaluator_;
  std::optional<std::string> unequal_;    // the error, if ranks' copies of inputs differ
  std::optional<ReplicaCheck> replicas_;  // if run.check_replicas, with several ranks
  TrainingPosition position_;             // after the last finished step
  std::function<void(int, int64_t, std::span<const Batch>)> on_batches_;  // see TrainOptions
  std::function<void(int, int64_t)> before_evaluation_batch_;             // see TrainOptions
  std::optional<IssuedStep> issued_;   // the step in flight, which follows position_
  Stopwatch stopwatch_;                // since the last step was finished or the first issued
  double loss_ = 0;                    // of the last finished step
  std::optional<std::string> ending_;  // why the run must save and end, if it must
  int64_t saved_step_ = 0;             // step of the last checkpoint; 0: none
};

}  // namespace tessera
