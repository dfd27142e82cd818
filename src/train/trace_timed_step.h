#pragma once

#include <cstdint>

#include "comm/rank_control.h"
#include "pipeline/gather_traces.h"
#include "train/timed_rank.h"

namespace tessera {

/// A step that was timed and traced.
struct TracedTimedStep {
  TimedStep step;
  GatheredTraces traces;  ///< of all ranks, as training writes them
};

/// Runs a step as TimedRank::run() does, with a trace. All ranks call it. What earlier steps have
/// left at work ends before the step, and what the step leaves at work is in its trace. `number` is
/// that of the step, from 1.
TracedTimedStep run_traced(TimedRank& rank, const RunConfig& config,
                           const PipelineSchedule& schedule, int64_t number, double ahead,
                           const RankControl& control);

}  // namespace tessera
