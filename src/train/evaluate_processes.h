#pragma once

#include <optional>

#include "comm/processes.h"
#include "inference/evaluate_checkpoint.h"

namespace tessera {

/// Evaluates a checkpoint as evaluate_checkpoint() does, with ranks that are processes. All ranks
/// call it, and each reads the checkpoint and the data. The first rank gets the result. Throws
/// Error that names a rank if its program, options, checkpoint or data differ from the first's.
std::optional<CheckpointEvaluation> evaluate_as_process(CheckpointEvaluationOptions options,
                                                        Processes& processes);

}  // namespace tessera
