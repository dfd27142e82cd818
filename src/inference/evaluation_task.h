#pragma once

#include <span>
#include <vector>

#include "comm/mesh.h"
#include "comm/rank_control.h"
#include "data/sources/open_data.h"
#include "inference/evaluate.h"
#include "inference/evaluate_checkpoint.h"
#include "inference/loaded_model.h"
#include "plan/programs.h"
#include "program/runtime.h"

namespace tessera {

/// An evaluation of a checkpoint, ready to run: the model, the data, the mesh, and what the ranks'
/// programs are written from. Ranks that are threads share one task. None of its functions changes
/// it.
struct EvaluationTask {
  const CheckpointEvaluationOptions& options;
  LoadedModel model;
  TrainingData data;
  Mesh mesh;
  PassesToWrite passes;

  /// Throws Error unless this machine's memory holds `copies` copies of the loaded weights (one for
  /// each process) and the programs of these ranks of the mesh.
  void require_memory(const Runtime& runtime, std::span<const int> ranks, int copies) const;
  /// Evaluates as the rank of `control`, which is of all ranks of the mesh. The runtime has joined
  /// its groups, if there are several ranks. Returns the losses by source. All ranks call it. A
  /// single rank may compute on a device.
  std::vector<SourceEvaluation> run_rank(const RankControl& control, Runtime& runtime) const;
  /// Returns the report without the losses of the model. Computes the baselines if they are wanted.
  CheckpointEvaluation report() const;
};

/// Returns the configuration of an evaluation: the model's, with the layout that the options give.
/// The layout and the recomputation of the training do not count.
RunConfig evaluation_config(const CheckpointEvaluationOptions& options, const LoadedModel& model);

/// Opens the data of a model and lays out the ranks. Throws Error as evaluate_checkpoint() does.
/// `options` must outlive the task.
EvaluationTask evaluation_task(const CheckpointEvaluationOptions& options, LoadedModel model);

}  // namespace tessera
