#include "plan/account/run_account.h"

#include <algorithm>
#include <limits>

namespace tessera {
namespace {

bool is_action(const ScheduleEntry& entry) { return std::holds_alternative<ChunkAction>(entry); }

/// The time from the first start of an action to the last end of one.
struct Window {
  double start = std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();

  double seconds() const { return std::max(end - start, 0.0); }
  /// Returns the seconds of an entry that are in this time.
  double part_of(const TimedEntry& entry) const {
    return std::max(std::min(entry.end(), end) - std::max(entry.start, start), 0.0);
  }
};

Window window_of(const RunTrace& trace) {
  Window window;
  for (const RankTrace& rank : trace.ranks) {
    for (const TimedEntry& entry : rank.list) {
      if (!is_action(entry.entry)) continue;
      window.start = std::min(window.start, entry.start);
      window.end = std::max(window.end, entry.end());
    }
  }
  return window;
}

}  // namespace

RunAccount account_for_run(const RunTrace& trace) {
  const Window window = window_of(trace);
  RunAccount account{.schedule = trace.schedule, .seconds = window.seconds()};
  double busy = 0, idle = 0;
  for (const RankTrace& rank : trace.ranks) {
    RankTime& time =
        account.ranks.emplace_back(RankTime{.rank = rank.rank(), .stage = rank.stage});
    for (const TimedEntry& entry : rank.list) {
      if (is_action(entry.entry)) time.busy_seconds += entry.duration;
      if (is_wait(entry.entry)) time.wait_seconds += window.part_of(entry);
    }
    time.idle_seconds = account.seconds - time.busy_seconds;
    busy += time.busy_seconds;
    idle += time.idle_seconds;
    account.stages = std::max(account.stages, rank.stage + 1);
    account.clock_uncertainty = std::max(account.clock_uncertainty, rank.step.clock_uncertainty);
  }
  account.bubble = busy > 0 ? idle / busy : 0;
  return account;
}

}  // namespace tessera
