#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/executor.h"
#include "model/model.h"
#include "train/training_step.h"

namespace tessera {

/// What a model makes of text it was not trained on.
struct Evaluation {
  double loss = 0;        ///< cross-entropy, nats a target token
  double perplexity = 0;  ///< e to the loss
  int64_t targets = 0;    ///< target tokens
  int64_t instances = 0;
};

/// The model as it is used without training: no token is dropped and routing is the model's own,
/// whatever capacity or forced routing it was trained with, so that a result does not depend on
/// what else is in the batch.
ModelConfig inference_config(ModelConfig config);

/// A forward program with memory for its inputs, run over batches of one size.
class Evaluator {
 public:
  /// `weights` are those of the model's parameters in order; they are shared, not copied.
  Evaluator(const ModelConfig& config, DType compute, std::span<const Tensor> weights, int64_t rows,
            int64_t context, bool document_mask, Context& execution);

  /// The mean loss over the first `instances` instances that the loader hands out, each counted
  /// once (rows of the last batch beyond them count nothing); 0 means a whole epoch.
  Evaluation run(Loader& loader, int64_t instances = 0);
  /// Memory that a run takes from the pool beside weights and inputs.
  int64_t planned_bytes(Context& execution) const;
  /// The cross-entropy (nats) of each row's target tokens, summed; the batch has the program's
  /// size.
  std::vector<double> row_losses(const Batch& batch);

 private:
  TrainingProgram training_;
  Executor executor_;
  Frame frame_;
  ProgramInputs inputs_;
  int64_t rows_;
};

/// What a model makes of one source.
struct SourceEvaluation {
  std::string name;
  double weight = 0;
  Evaluation evaluation;
};

/// Evaluates on the held-out part of every source that has one, `rows` instances at a time, which
/// is the evaluator's, at most `instances` of each (0: all). Throws Error when no source has one.
std::vector<SourceEvaluation> evaluate_sources(Evaluator& evaluator, const TrainingData& data,
                                               int64_t rows, int64_t instances);

/// The mean loss of a mix: that of its sources weighted as they are mixed, so that it is comparable
/// with the loss of training. Targets and instances are summed.
Evaluation mean_evaluation(std::span<const SourceEvaluation> sources);

}  // namespace tessera
