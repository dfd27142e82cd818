#pragma once

#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace tessera {

/// What can be wrong with a schedule.
enum class FindingKind {
  placement,       ///< the placement itself: a rank without a chunk, a chunk without a rank
  unknown,         ///< an action or a message of something that does not exist
  wrong_rank,      ///< an entry on a rank that does not have its chunk
  missing,         ///< an action that no rank runs
  repeated,        ///< an action that runs twice
  mixed_backward,  ///< a whole backward, and a half of it
  order,           ///< an action before what it needs, a send before what it sends
  unposted,        ///< a wait for a message that is not posted before
  posted_twice,    ///< a message whose memory is in use already
  unawaited,       ///< a post whose end no wait shows, so its memory is never free
  untaken,         ///< a message that only one of the two sides posts
  message_order,   ///< a channel's messages are received in another order than they are sent
  deadlock,        ///< ranks that wait for each other
};
/// One thing that is wrong with a schedule.
struct ScheduleFinding {
  static constexpr int kNone = -1;

  FindingKind kind = FindingKind::unknown;
  int rank = kNone;    ///< kNone if no one rank is to blame
  int entry = kNone;   ///< index in the rank's list, from 0; kNone if it is about the whole list
  std::string reason;  ///< what was found and what was expected

  /// Returns "rank 1, entry 4: <reason>".
  std::string text() const;
};

/// Returns what is wrong with a schedule; nothing if it may run. Then
///  - every action of every chunk and micro-batch runs once, on the rank of its chunk, as a whole
///    backward or as its two halves;
///  - a forward comes before its backward, input gradients before weight gradients, and each input
///    is there when its action begins: computed on the rank before, or awaited;
///  - every message that must cross is posted and awaited once by both sides, in the same order on
///    each channel;
///  - all lists come to their end even if a message moves only when both its sides have come to it.
///
/// Findings of a later kind need sound lists: they are looked for only if there are none of the
/// earlier kinds, in the order placement; actions; order and messages; message order; deadlock.
std::vector<ScheduleFinding> validate(const PipelineSchedule& schedule);

/// Throws Error with the first findings, if there are any. `origin` names the schedule: a file.
void require_valid(const PipelineSchedule& schedule, const std::string& origin);

}  // namespace tessera
