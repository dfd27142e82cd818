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

/// What a model makes of text it was not trained on.
struct Evaluation {
  double loss = 0;        ///< cross-entropy, nats a target token
  double perplexity = 0;  ///< e to the loss
  int64_t targets = 0;    ///< target tokens
  int64_t instances = 0;
};

/// Runs an evaluation program over batches of its size.
class Evaluator {
 public:
  /// A program of an executor, such as the one that trains; both outlive the evaluator.
  Evaluator(const EvaluationProgram& program, Executor& executor, int number);

  /// The mean loss over the first `instances` instances that the loader hands out, each counted
  /// once (rows of the last batch beyond them count nothing); 0 means a whole epoch. Throws Error
  /// on a token outside the model's vocabulary.
  Evaluation run(Loader& loader, int64_t instances = 0);
  /// The cross-entropy (nats) of each row's target tokens, summed; the batch has the program's
  /// size. Throws Error on a token outside the model's vocabulary.
  std::vector<double> row_losses(const Batch& batch);
  /// The model's.
  int64_t vocabulary_size() const { return inputs_.vocabulary_size; }

 private:
  /// Runs a batch and gives its token losses.
  const Tensor& token_losses(const Batch& batch);

  const EvaluationProgram& program_;
  Executor& executor_;
  int number_;
  BatchInputs inputs_;
};

/// An evaluator with a program and an executor of its own, on weights that are there.
class StandaloneEvaluator {
 public:
  /// `weights` are the units of the model's parameters; they are shared, not copied. `runtime`
  /// outlives the evaluator.
  StandaloneEvaluator(const ModelConfig& config, DType compute, const GivenTensors& weights,
                      const ProgramSize& size, Runtime& runtime);
  StandaloneEvaluator(const StandaloneEvaluator&) = delete;
  StandaloneEvaluator& operator=(const StandaloneEvaluator&) = delete;

  Evaluator& operator*() { return evaluator_; }
  Evaluator* operator->() { return &evaluator_; }

 private:
  EvaluationProgram program_;
  Executor executor_;
  Evaluator evaluator_;
};

/// Throws Error when a StandaloneEvaluator of this size would take more memory than the machine has
/// beside the weights, before it takes any.
void require_evaluation_memory(const ModelConfig& config, DType compute,
                               const GivenTensors& weights, const ProgramSize& size,
                               const Target& target);

/// What a model makes of one source.
struct SourceEvaluation {
  std::string name;
  double weight = 0;
  Evaluation evaluation;
};

/// Evaluates on the held-out part of every source that has one, `rows` instances at a time, which
/// are the evaluator's, at most `instances` of each (0: all). Throws Error when no source has one,
/// and as Evaluator::run() does.
std::vector<SourceEvaluation> evaluate_sources(Evaluator& evaluator, const TrainingData& data,
                                               int64_t rows, int64_t instances);

/// The rows of a batch that evaluates `instances` (0: all) of each source: `rows`, or fewer where
/// no source has so many.
int64_t evaluation_rows(const TrainingData& data, int64_t rows, int64_t instances);

/// The mean loss of a mix: that of its sources weighted as they are mixed, so that it is comparable
/// with the loss of training. Targets and instances are summed.
Evaluation mean_evaluation(std::span<const SourceEvaluation> sources);

}  // namespace tessera
