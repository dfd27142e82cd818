#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"
#include "plan/batch_inputs.h"

namespace tessera {

// Evaluation: the mean loss of a model on held-out data. An Evaluator runs one batch, a
// LoaderEvaluation the batches of one loader, and a SourcesEvaluation the held-out parts of all
// sources of the data. In training the Evaluator uses the run's executor. Elsewhere a
// StandaloneEvaluator has its own, and require_evaluation_memory() checks beforehand that it fits.

/// The losses of a model on text that it was not trained on.
struct Evaluation {
  double loss = 0;        ///< cross-entropy, nats per target token
  double perplexity = 0;  ///< exp(loss)
  int64_t targets = 0;    ///< target tokens
  int64_t instances = 0;
};

/// Runs an evaluation program on batches of the program's size.
class Evaluator {
 public:
  /// `program` is the program at `program_index` of the executor. Both must outlive the evaluator.
  Evaluator(const EvaluationProgram& program, Executor& executor, int program_index);

  /// Returns the mean loss over the first `instances` instances of the loader (at most a whole
  /// epoch; 0: a whole epoch). Further rows of the last batch do not count. Throws Error on a token
  /// outside the model's vocabulary. All ranks of the program call it together, each with a loader
  /// of its own part. If it throws on one rank, the others wait for that rank in a collective.
  Evaluation run(Loader& loader, int64_t instances = 0);
  /// Returns the cross-entropy (nats) of each row of a batch of the program's size, summed over the
  /// row's target tokens. The program must have one rank. Throws Error on a token outside the
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

  const EvaluationProgram& program_;
  Executor& executor_;
  int program_index_;
  BatchInputs inputs_;
};

/// An evaluator that owns its program and executor, and uses existing weights.
class StandaloneEvaluator {
 public:
  /// `weights` are the units of the model's parameters. They are shared, not copied. `runtime` must
  /// outlive the evaluator.
  StandaloneEvaluator(const ModelConfig& config, DType compute, const GivenTensors& weights,
                      const ProgramSize& size, Runtime& runtime);
  /// Takes a program that is already written, as by write_evaluation().
  StandaloneEvaluator(EvaluationProgram program, const GivenTensors& weights, Runtime& runtime);
  StandaloneEvaluator(const StandaloneEvaluator&) = delete;
  StandaloneEvaluator& operator=(const StandaloneEvaluator&) = delete;

  Evaluator& operator*() { return evaluator_; }
  Evaluator* operator->() { return &evaluator_; }

 private:
  EvaluationProgram program_;
  Executor executor_;
  Evaluator evaluator_;
};

/// Throws Error when a StandaloneEvaluator of this size would need more memory than there is. On
/// the processor the need includes the weights. On a device the weights are there already, and the
/// free memory must hold the rest. Only plans the memory; allocates none.
void require_evaluation_memory(const ModelConfig& config, DType compute,
                               const GivenTensors& weights, const ProgramSize& size,
                               const Runtime& runtime);
/// Does the same for `ranks` ranks, which share the machine's memory and each run a program as
/// large as `program`. `held` is the number of bytes that the loaded weights occupy in that memory.
/// `shared` are those of the weights that the program uses without a copy.
void require_evaluation_memory(const EvaluationProgram& program, const GivenTensors& shared,
                               const ProgramSize& size, const Runtime& runtime, int ranks,
                               int64_t held);

/// The losses of a model on one source.
struct SourceEvaluation {
  std::string name;
  double weight = 0;
  Evaluation evaluation;
};

/// The evaluation of a loader's instances, batch by batch. The caller may stop after any batch.
class LoaderEvaluation {
 public:
  /// Evaluates the first `instances` instances; 0: a whole epoch. Refers to the other arguments.
  LoaderEvaluation(Evaluator& evaluator, Loader& loader, int64_t instances);

  bool done() const { return done_ >= evaluation_.instances; }
  /// Runs the next batch. Throws as Evaluator::run().
  void next();
  /// Returns the losses. Call it once done() is true.
  Evaluation result() const;

 private:
  Evaluator& evaluator_;
  Loader& loader_;
  Evaluation evaluation_;  // all but the losses
  double loss_ = 0;        // summed over the targets of the batches so far
  int64_t done_ = 0;       // instances of the batches so far
};

/// The evaluation of every source of the data that has a held-out part, batch by batch. All ranks
/// of the program go through it together.
class SourcesEvaluation {
 public:
  /// Evaluates at most `instances` instances of each source; 0: all. `rows` is the batch size, over
  /// all ranks, of the evaluator's program. The evaluator and the data must outlive this object.
  /// Throws Error when no source has a held-out part.
  SourcesEvaluation(Evaluator& evaluator, const TrainingData& data, int64_t rows,
                    int64_t instances);

  bool done() const { return results_.size() == sources_.size(); }
  /// Runs the next batch. Throws as Evaluator::run().
  void next();
  /// Returns the losses of the sources that are done.
  const std::vector<SourceEvaluation>& results() const { return results_; }

 private:
  void begin_source();

  Evaluator& evaluator_;
  const TrainingData& data_;
  LoaderOptions options_;
  int64_t instances_;
  std::vector<const DataSource*> sources_;
  std::optional<Loader> loader_;  // of the source whose result comes next
  std::optional<LoaderEvaluation> evaluation_;
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
