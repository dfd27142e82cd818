#pragma once

#include <cstdint>

#include "config/run_config.h"
#include "engine/count_flops.h"
#include "engine/memory_plan.h"
#include "model/model.h"

namespace tessera {

/// What one rank will hold and do, known before anything runs.
struct StepPlan {
  TrainingProgram training;
  MemoryPlan memory;  ///< of one micro-batch, on top of what is held throughout
  int64_t parameters = 0;
  int64_t active_parameters = 0;
  int64_t state_bytes = 0;   ///< weights, masters, gradients, moments
  int64_t input_bytes = 0;   ///< tokens and the like
  int64_t peak_bytes = 0;    ///< of the pool: states, inputs and the program's values
  int64_t extent_bytes = 0;  ///< of the pool: the peak, and the holes between blocks
  FlopCount flops;           ///< of one micro-batch
  int64_t tokens = 0;        ///< of one micro-batch
};

/// Plans a resolved configuration (see resolve()) for a machine, which need not be this one. The
/// peak and the extent equal the pool's measured ones.
StepPlan plan_step(const RunConfig& config, const Target& target);

/// The same for this machine. Throws Error when the step needs more memory than this machine has.
/// The plan is exact, so that a run that cannot fit is refused before it takes any.
StepPlan plan_step_that_fits(const RunConfig& config);

}  // namespace tessera
