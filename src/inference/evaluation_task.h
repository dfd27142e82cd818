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

/// An evaluation of a checkpoint, ready to run: the model, the data, and the mesh and the size of
/// the programs. Ranks that are threads share one task. None of its functions changes it.
struct EvaluationTask {
  const CheckpointEvaluationOptions& options;
  LoadedModel model;
  TrainingData data;
  Mesh mesh;
  ProgramSize size;

  /// Returns the program of one rank of the mesh.
  EvaluationProgram program(int rank) const;
  /// Throws Error unless this machine's memory holds `copies` copies of the loaded weights (one for
  /// each process) and `ranks` programs as large as the program of `rank`.
  void require_memory(const Runtime& runtime, int rank, int ranks, int copies) const;
  /// Evaluates as one rank of the mesh, whose groups (of several ranks) the runtime has joined, and
  /// returns the losses by source. All ranks call it. A single rank may compute on a device.
  std::vector<SourceEvaluation> run_rank(int rank, Runtime& runtime) const;
  /// Returns the report without the losses of the model. Computes the baselines if they are wanted.
  CheckpointEvaluation report() const;
};

/// Opens the data of a model and lays out the ranks. Throws Error as evaluate_checkpoint() does.
/// `options` must outlive the task.
EvaluationTask evaluation_task(const CheckpointEvaluationOptions& options, LoadedModel model);

}  // namespace tessera
