#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/run_trace.h"
#include "plan/programs.h"
#include "program/runtime.h"
#include "train/shared_run.h"

namespace tessera {

/// Returns the trace of a rank's step, with its machine, its stage and its coordinates in the mesh.
/// `set` is that of the step's passes (see StepPrograms), and `list` what the stage's list made the
/// rank do.
RankTrace rank_trace(StepTrace step, std::vector<TimedEntry> list, const SharedRun& run,
                     const StepPrograms& programs, int set, const Runtime& runtime);

}  // namespace tessera
