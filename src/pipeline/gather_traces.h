#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

/// The traces of all ranks, on the first rank. Empty on the others.
struct GatheredTraces {
  std::string text;  ///< of the file
  size_t ranks = 0;  ///< of the run
  size_t ranks_written = 0;
  int64_t bytes = 0;      ///< that all ranks' texts would take
  int64_t max_bytes = 0;  ///< that they may take

  /// Returns a sentence that says how many ranks are not in the file, which it names `file`.
  /// Returns an empty text if all are.
  std::string warning(const std::filesystem::path& file) const;
};

/// The bytes that the ranks' texts in a file have at most, unless the first rank alone has more.
/// They are well below the size of a file that read_trace() takes.
inline constexpr int64_t kMaxGatheredBytes = int64_t{256} << 20;

/// Puts the traces of all ranks on one axis of times: that of the first rank's clock, from the
/// earliest start of the step on any rank. Between the two measurements an offset is taken to
/// change evenly. If the texts of all ranks have more than `max_bytes`, the file has the first
/// ranks whose texts have no more, and at least the first one. All ranks call it together.
GatheredTraces gather_traces(OwnTrace own, const TracedSchedule& schedule,
                             const RankControl& control, int64_t max_bytes = kMaxGatheredBytes);

}  // namespace tessera
