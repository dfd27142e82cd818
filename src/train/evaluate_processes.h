#pragma once

#include <optional>

#include "comm/processes.h"
#include "inference/evaluate_checkpoint.h"

namespace tessera {

/// Evaluates a checkpoint as evaluate_checkpoint() does, with ranks that are processes, all of
/// which call it. Each reads the checkpoint and the data. The first one gets the result, the others
/// none. Throws Error that names a rank with another program, option, checkpoint or other data.
std::optional<CheckpointEvaluation> evaluate_as_process(CheckpointEvaluationOptions options,
                                                        Processes& processes);

}  // namespace tessera
