#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/rank_control.h"
#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"
#include "pipeline/stage_runner.h"
#include "plan/batch_inputs.h"
#include "plan/evaluation_passes.h"

namespace tessera {

// Evaluation: the mean loss of a model on held-out data. An Evaluator runs one batch, and a
// SourcesEvaluation the held-out parts of all sources of the data. In training the Evaluator uses
// the run's executor. Elsewhere a StandaloneEvaluator has its own, and require_evaluation_memory()
// checks beforehand that it fits.

/// The losses of a model on text that it was not trained on.
struct Evaluation {
  double loss = 0;        ///< cross-entropy, nats per target token
  double perplexity = 0;  ///< exp(loss)
  int64_t targets = 0;    ///< target tokens
  int64_t instances = 0;
};

/// Runs an evaluation on batches of its programs' size.
class Evaluator {
 public:
  /// `first_program` is the number of the first chunk's program in the executor's list; those of
  /// the other chunks follow it. Passes and executor must outlive the evaluator.
  Evaluator(const EvaluationPasses& passes, int first_program, Executor& executor);

  /// Returns the cross-entropy (nats) of each row of a batch of the program's size, summed over the
  /// row's target tokens. The passes must be those of one rank. Throws Error on a token outside the
  /// model's vocabulary.
  std::vector<double> row_losses(const Batch& batch);
  /// Returns the cross-entropy (nats) summed over the target tokens of the batches of all ranks.
  /// All ranks call it together. Each batch must have the program's size. Throws as row_losses().
  double batch_loss(const Batch& batch);
  /// Returns the options of a loader that gives this rank its part of the held-out data, in batches
  /// of `rows` rows over all ranks. The number of data-parallel ranks must divide `rows`.
  LoaderOptions loader_options(int64_t rows) const;

 private:
  /// Runs a batch. Returns the losses [ranks * rows * context] of all ranks' tokens, on the host.
  Tensor token_losses(const Batch& batch);

  const EvaluationPasses& passes_;
  Executor& executor_;
  int first_program_;
  StageRunner runner_;
  StageList list_;
  std::vector<BatchInputs> inputs_;  // by chunk
};

/// An evaluator that owns its passes and executor, and uses existing weights.
class StandaloneEvaluator {
 public:
  /// `weights` are the units of the model's parameters. They are shared, not copied. `runtime` must
  /// outlive the evaluator. If the passes are of several ranks, these are the ranks of `control`,
  /// and all of them make an evaluator together.
  StandaloneEvaluator(EvaluationPasses passes, const GivenTensors& weights, Runtime& runtime,
                      const RankControl& control = {});
  StandaloneEvaluator(const StandaloneEvaluator&) = delete;
  StandaloneEvaluator& operator=(const StandaloneEvaluator&) = delete;

  Evaluator& operator*() { return evaluator_; }
  Evaluator* operator->() { return &evaluator_; }

 private:
  EvaluationPasses passes_;
  Executor executor_;
  Evaluator evaluator_;
};

/// Returns the bytes that a StandaloneEvaluator of these passes takes beside the `shared` weights,
/// which it uses without a copy. Only plans the memory; allocates none.
int64_t evaluation_bytes(const EvaluationPasses& passes, const GivenTensors& shared,
                         const Target& target);

/// Throws Error when evaluations that take `needed` bytes (see evaluation_bytes()), of all ranks
/// that share this machine's memory, do not fit there. On the processor the memory also has to hold
/// `copies` copies of the loaded `weights`. A device holds the weights already, and its free memory
/// must hold the rest. `size` is that of a batch, for the message.
void require_evaluation_memory(int64_t needed, const GivenTensors& weights, const ProgramSize& size,
                               const Runtime& runtime, int copies = 1);

/// The losses of a model on one source.
struct SourceEvaluation {
  std::string name;
  double weight = 0;
  Evaluation evaluation;
};

/// The evaluation of every source of the data that has a held-out part, batch by batch. All ranks
/// of the program go through it together. The caller may stop after any batch.
class SourcesEvaluation {
 public:
  /// Evaluates at most `instances` instances of each source; 0: all. `rows` is the batch size, over
  /// all ranks, of the evaluator's program. The evaluator and the data must outlive this object.
  /// Throws Error when no source has a held-out part.
  SourcesEvaluation(Evaluator& evaluator, const TrainingData& data, int64_t rows,
                    int64_t instances);

  bool done() const { return results_.size() == sources_.size(); }
  /// Runs the next batch. Rows beyond the last wanted instance do not count. Throws Error on a
  /// token outside the model's vocabulary. If it throws on one rank, the others wait for that rank
  /// in a collective.
  void next();
  /// Returns the losses of the sources that are done.
  const std::vector<SourceEvaluation>& results() const { return results_; }

 private:
  void begin_next_source();

  Evaluator& evaluator_;
  const TrainingData& data_;
  LoaderOptions options_;
  int64_t instances_;
  std::vector<const DataSource*> sources_;
  // The state of the source whose result comes next:
  std::optional<Loader> loader_;
  Evaluation evaluation_;       // its loss and perplexity are set at the end of the source
  double loss_sum_ = 0;         // over the targets of the batches so far
  int64_t instances_done_ = 0;  // of the batches so far
  std::vector<SourceEvaluation> results_;
};

/// Runs a SourcesEvaluation to its end, and returns the losses by source.
std::vector<SourceEvaluation> evaluate_sources(Evaluator& evaluator, const TrainingData& data,
                                               int64_t rows, int64_t instances);

/// Returns the number of rows of a batch for evaluating `instances` instances (0: all) of each
/// source: `rows`, or fewer (at least 1) if no source has that many.
int64_t evaluation_rows(const TrainingData& data, int64_t rows, int64_t instances);

/// Returns the mean loss of at least one source, weighted by the sources' weights in the mix, which
/// makes it comparable with the training loss. Targets and instances are summed.
Evaluation mean_evaluation(std::span<const SourceEvaluation> sources);

}  // namespace tessera
