#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/schedule.h"

namespace tessera {

/// How long the passes of one chunk take for one micro-batch, in any unit of time.
struct ChunkTimes {
  double forward = 1;
  double input_gradients = 1;
  double weight_gradients = 1;  ///< a whole backward takes the sum of the two

  /// Returns the time of an action of that kind.
  double of(ActionKind kind) const;
};

/// How long the actions and messages of a schedule take.
struct ScheduleTimes {
  std::vector<ChunkTimes> chunks{ChunkTimes{}};  ///< by chunk; or a single one for all chunks
  double latency = 0;  ///< from the moment at which a message may move to its arrival

  /// Returns the time of an action.
  double of(const ChunkAction& action) const {
    return chunks[chunks.size() == 1 ? 0 : static_cast<size_t>(action.chunk)].of(action.kind);
  }
};

/// When a rank runs one of its actions.
struct TimedAction {
  ChunkAction action;
  double start = 0;
  double end = 0;
};

/// What one rank does in a step. The peaks are numbers of pairs of a chunk and a micro-batch.
struct RankFigures {
  std::vector<TimedAction> actions;
  double busy = 0;  ///< the time of its actions
  /// The most forwards that have begun and whose backward, weight gradients included, is not done.
  int peak_in_flight = 0;
  /// The same, but only until the input gradients are done.
  int peak_before_gradients = 0;
  /// The most whose input gradients are done but not their weight gradients.
  int peak_deferred = 0;
};

/// What a step of a schedule takes.
struct ScheduleFigures {
  double makespan = 0;  ///< from the first start to the last end
  double bubble = 0;    ///< idle time of all ranks over the time of their actions (Llama 3, 3.1.1)
  std::vector<RankFigures> ranks;
};

/// Returns the figures of ranks that run these actions, each rank in the order in which it runs
/// them. Times count from 0, and the last rank is done at `makespan`.
ScheduleFigures figures_of(const std::vector<std::vector<TimedAction>>& ranks, double makespan);

/// Returns the figures of a schedule that validate() accepts. A message begins to move when both
/// its send and its receive are posted. Links carry any number of messages at once. Waits for sends
/// count as idle time. Throws InternalError if the schedule deadlocks.
ScheduleFigures measure(const PipelineSchedule& schedule, const ScheduleTimes& times);

/// A rank that never comes past an entry.
struct StuckRank {
  int rank = 0;
  size_t entry = 0;  ///< index of a wait in its list
};

/// Executes the lists: a message moves only when both sides have come to it. Returns the ranks that
/// do not come to their end, none if the schedule has no deadlock.
std::vector<StuckRank> stuck_ranks(const PipelineSchedule& schedule);

inline bool deadlocks(const PipelineSchedule& schedule) { return !stuck_ranks(schedule).empty(); }

}  // namespace tessera
