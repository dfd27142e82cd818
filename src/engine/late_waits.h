#pragma once

#include <limits>
#include <span>
#include <vector>

#include "program/operation.h"
#include "program/program.h"

namespace tessera {

inline constexpr int kNeverKnown = std::numeric_limits<int>::max();

/// A step that may be at work when its action has ended.
struct OutlastingStep {
  int program = 0;
  int segment_index = 0;  ///< in ProgramMemory::order
  int step = 0;
  /// The first step of its segment that knows it to be done, or the number of its steps if the end
  /// of the segment awaits it; kNeverKnown if neither does.
  int known_at = 0;
  Lane lane = Lane::reductions;
};

/// A wait of a step for an outlasting step of an earlier action, if that is still at work.
struct LateWait {
  int outlasting = 0;  ///< index in the list of outlasting steps
  /// Whether only steps of the same frame use the same memory. Otherwise those of all frames do.
  bool same_frame = false;
};

/// By program, segment and step: the waits for outlasting steps.
using LateWaits = std::vector<std::vector<std::vector<std::vector<LateWait>>>>;

/// Returns the waits for the steps `outlasting` of actions that come before, in whatever order
/// actions run. `nodes` are those of each program, by segment.
LateWaits find_late_waits(std::span<const Program* const> programs,
                          std::span<const std::vector<std::vector<int>>> nodes,
                          std::span<const OutlastingStep> outlasting);

}  // namespace tessera
