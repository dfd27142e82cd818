#pragma once

#include <string>

#include "comm/clock_offset.h"
#include "comm/rank_control.h"
#include "pipeline/run_trace.h"

namespace tessera {

/// A rank's trace by its own clock.
struct OwnTrace {
  RankTrace trace;     ///< times count from its beginning
  double begin = 0;    ///< what the clock showed then (Trace::begin())
  ClockOffset before;  ///< measured before the step, by the same clock
  ClockOffset after;   ///< measured after it
};

/// Puts the traces of all ranks on one axis of times: that of the first rank's clock, from the
/// earliest start of the step on any rank. Between the two measurements an offset is taken to
/// change evenly. Returns the file of all ranks on the first rank, and an empty text on the others.
/// All ranks call it together.
std::string gather_traces(OwnTrace own, const TracedSchedule& schedule, const RankControl& control);

}  // namespace tessera
