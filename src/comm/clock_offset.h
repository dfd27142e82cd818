#pragma once

#include <functional>

#include "comm/rank_control.h"

namespace tessera {

/// By how much the first rank's clock is ahead of this rank's, at one moment. Clocks of different
/// machines count from different moments and drift apart by some ten microseconds a second.
struct ClockOffset {
  double at = 0;           ///< the moment, by this rank's clock, in seconds
  double seconds = 0;      ///< the first rank's clock minus this rank's
  double uncertainty = 0;  ///< the true difference is at most this far from `seconds`
};

/// Measures the offset of this rank's clock, in some milliseconds. `clock` returns seconds since a
/// moment that is fixed. All ranks call it together. The offset and the uncertainty are 0 on the
/// first rank and on ranks that share its clock. Ranks that share another clock get one offset.
ClockOffset measure_clock_offset(const RankControl& control, const std::function<double()>& clock);

}  // namespace tessera
