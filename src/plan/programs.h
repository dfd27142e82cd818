#pragma once

#include <optional>
#include <vector>

#include "config/run_config.h"
#include "engine/action.h"
#include "model/model.h"
#include "state/update_program.h"

namespace tessera {

/// The model as it is used without training: no token is dropped and routing is the model's own,
/// whatever capacity or forced routing it was trained with, so that a result does not depend on
/// what else is in the batch.
ModelConfig inference_config(ModelConfig config);

/// All that a rank runs in training. Programs have numbers in the order of list().
struct StepPrograms {
  std::vector<Chunk> chunks;                    ///< of the model; one
  Program start;                                ///< before the micro-batches of a step
  UpdateProgram update;                         ///< after them
  std::optional<EvaluationProgram> evaluation;  ///< of a run that evaluates

  std::vector<const Program*> list() const;
  int start_number() const { return static_cast<int>(chunks.size()); }
  int update_number() const { return start_number() + 1; }
  int evaluation_number() const { return start_number() + 2; }

  /// What a step runs, in order, and an evaluation behind it.
  std::vector<Action> actions(int64_t micro_batches) const;
};

/// Of a resolved configuration.
StepPrograms step_programs(const RunConfig& config);

}  // namespace tessera
