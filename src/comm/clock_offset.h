#pragma once

#include <cstdint>
#include <functional>

#include "comm/rank_control.h"

namespace tessera {

/// A clock that several ranks may read.
struct RankClock {
  std::function<double()> seconds;  ///< since a moment that is fixed
  uint64_t id = 0;                  ///< equal on the ranks that read the same clock
};

/// Returns the machine's monotonic clock. Its id is that of the machine's start and of the
/// process's time namespace, in which the clock may be shifted.
RankClock monotonic_clock();

/// By how much the first rank's clock is ahead of this rank's, at one moment. Clocks of different
/// machines count from different moments and drift apart by some ten microseconds a second.
struct ClockOffset {
  double at = 0;           ///< the moment, by this rank's clock, in seconds
  double seconds = 0;      ///< the first rank's clock minus this rank's
  double uncertainty = 0;  ///< the true difference is at most this far from `seconds`
};

/// Measures the offset of this rank's clock, in some milliseconds. All ranks call it together. The
/// offset and the uncertainty are 0 on the first rank and on ranks that share its clock. Ranks that
/// share another clock get one offset.
ClockOffset measure_clock_offset(const RankControl& control, const RankClock& clock);

}  // namespace tessera
