#pragma once

#include "comm/mesh.h"
#include "inference/loaded_model.h"
#include "plan/evaluation_passes.h"

namespace tessera {

/// Returns the units of the model's weights that the rank has whole. Its programs can use them
/// without a copy.
GivenTensors shared_weights(const LoadedModel& model, const EvaluationPasses& passes);

/// Returns the weights for the programs of one rank: the shared units, and copies of the rank's
/// pieces of the others.
GivenTensors rank_weights(const LoadedModel& model, const EvaluationPasses& passes);

}  // namespace tessera
