#pragma once

#include "config/run_config.h"
#include "model/model.h"

namespace tessera {

/// The model as it is used without training: no token is dropped and routing is the model's own,
/// whatever capacity or forced routing it was trained with, so that a result does not depend on
/// what else is in the batch.
ModelConfig inference_config(ModelConfig config);

/// The forward program of one micro-batch of a resolved configuration: what evaluation runs.
TrainingProgram evaluation_program(const RunConfig& config);

/// Forward and backward with the configured recomputation: what a training step runs and what a
/// plan accounts for.
TrainingProgram training_program(const RunConfig& config);

}  // namespace tessera
