#pragma once

#include "config/run_config.h"
#include "model/model.h"

namespace tessera {

/// The forward program of one micro-batch of a resolved configuration: what evaluation runs.
TrainingProgram evaluation_program(const RunConfig& config);

/// Forward and backward with the configured recomputation: what a training step runs and what a
/// plan accounts for.
TrainingProgram training_program(const RunConfig& config);

}  // namespace tessera
