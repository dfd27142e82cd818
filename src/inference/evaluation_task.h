#pragma once

#include <vector>

#include "comm/mesh.h"
#include "data/sources/open_data.h"
#include "inference/evaluate.h"
#include "inference/evaluate_checkpoint.h"
#include "inference/loaded_model.h"
#include "plan/programs.h"
#include "program/runtime.h"

namespace tessera {

/// What a checkpoint is evaluated on, and how: one rank's view of it, of which threads share one.
struct EvaluationTask {
  const CheckpointEvaluationOptions& options;
  LoadedModel model;
  TrainingData data;
  Mesh mesh;
  ProgramSize size;

  EvaluationProgram program(int rank) const;
  /// Throws Error unless `ranks` ranks with programs as large as that of `rank` fit in this
  /// machine's memory beside `copies` of the weights.
  void require_memory(const Runtime& runtime, int rank, int ranks, int copies) const;
  /// Evaluates on one rank that has all of the model, where the runtime computes.
  std::vector<SourceEvaluation> run(Runtime& runtime) const;
  /// Evaluates as one rank of the mesh, whose groups the runtime has joined. All ranks call it.
  std::vector<SourceEvaluation> run_rank(int rank, Runtime& runtime) const;
  /// What is reported, without the losses. Counts the baselines if they are asked for.
  CheckpointEvaluation report() const;
};

/// Opens the data of a model and lays out the ranks. Throws Error as evaluate_checkpoint() does.
/// Refers to `options`.
EvaluationTask evaluation_task(const CheckpointEvaluationOptions& options, LoadedModel model);

}  // namespace tessera
