#pragma once

#include <cstdint>
#include <vector>

#include "config/run_config.h"
#include "pipeline/run_trace.h"
#include "plan/programs.h"
#include "program/runtime.h"

namespace tessera {

/// What the ranks of a traced run have in common.
struct TracedRun {
  const RunConfig& config;
  double gemm_peak = 0;  ///< as in TraceOrigin
  int64_t tokens = 0;    ///< likewise
};

/// Returns the trace of a rank's step, with its machine, its stage and its coordinates in the mesh.
/// `set` is that of the step's passes (see StepPrograms), and `list` what the stage's list made the
/// rank do.
RankTrace rank_trace(StepTrace step, std::vector<TimedEntry> list, const TracedRun& run,
                     const StepPrograms& programs, int set, const Runtime& runtime);

}  // namespace tessera
