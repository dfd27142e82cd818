#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"
#include "plan/batch_inputs.h"

namespace tessera {

/// The losses of a model on text it was not trained on.
struct Evaluation {
  double loss = 0;        ///< cross-entropy, nats per target token
  double perplexity = 0;  ///< e to the loss
  int64_t targets = 0;    ///< target tokens
  int64_t instances = 0;
};

/// Runs an evaluation program over batches of its size.
class Evaluator {
 public:
  /// Evaluates with a program of an executor, such as the one that trains. Both must outlive the
  /// evaluator.
  Evaluator(const EvaluationProgram& program, Executor& executor, int number);

  /// Returns the mean loss over the first `instances` instances of the loader; 0 means a whole
  /// epoch. Each instance counts once: rows of the last batch beyond them do not count. Throws
  /// Error on a token outside the model's vocabulary. All ranks of the program run it together,
  /// each with a loader of its own part; if it throws on one, the others wait for that one in the
  /// program.
  Evaluation run(Loader& loader, int64_t instances = 0);
  /// Returns the cross-entropy (nats) of each row's target tokens, summed. The batch must have the
  /// program's size. Throws Error on a token outside the model's vocabulary.
  std::vector<double> row_losses(const Batch& batch);
  /// Which instances of the held-out data a rank reads: a loader's part of batches of `rows` rows,
  /// counted over all ranks, which divide over those that have sequences of their own.
  LoaderOptions own_rows(int64_t rows) const;

 private:
  /// Runs a batch and returns its token losses.
  Tensor token_losses(const Batch& batch);

  const EvaluationProgram& program_;
  Executor& executor_;
  int number_;
  BatchInputs inputs_;
};

/// An evaluator with its own program and executor, on existing weights.
class StandaloneEvaluator {
 public:
  /// `weights` are the units of the model's parameters. They are shared, not copied. `runtime` must
  /// outlive the evaluator.
  StandaloneEvaluator(const ModelConfig& config, DType compute, const GivenTensors& weights,
                      const ProgramSize& size, Runtime& runtime);
  /// With a program that is written already, as by write_evaluation().
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

/// Throws Error when a StandaloneEvaluator of this size would take more memory than there is, on
/// the processor beside the weights, on a device beside what it holds by now. Takes no memory
/// itself.
void require_evaluation_memory(const ModelConfig& config, DType compute,
                               const GivenTensors& weights, const ProgramSize& size,
                               const Runtime& runtime);
/// The same for a program, of which each of `ranks` ranks has one. They share the memory of the
/// machine, `held` bytes of which the weights have that all ranks use as they are, and which
/// `shared` names.
void require_evaluation_memory(const EvaluationProgram& program, const GivenTensors& shared,
                               const ProgramSize& size, const Runtime& runtime, int ranks,
                               int64_t held);

/// The losses of a model on one source.
struct SourceEvaluation {
  std::string name;
  double weight = 0;
  Evaluation evaluation;
};

/// Evaluates on the held-out part of every source that has one, at most `instances` instances of
/// each (0: all). `rows` instances run at a time; it must be the evaluator's number. Throws Error
/// when no source has a held-out part, and as Evaluator::run() does. All ranks of the program call
/// it together, as Evaluator::run().
std::vector<SourceEvaluation> evaluate_sources(Evaluator& evaluator, const TrainingData& data,
                                               int64_t rows, int64_t instances);

/// Returns the rows of a batch that evaluates `instances` (0: all) of each source: `rows`, or fewer
/// if no source has that many.
int64_t evaluation_rows(const TrainingData& data, int64_t rows, int64_t instances);

/// Returns the mean loss of a mix. The sources have the weights of the mix, which makes the mean
/// comparable with the training loss. Targets and instances are summed.
Evaluation mean_evaluation(std::span<const SourceEvaluation> sources);

}  // namespace tessera
