#include "plan/account/run_account.h"

#include <algorithm>
#include <limits>
#include <variant>

#include "pipeline/clock.h"

namespace tessera {
namespace {

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
      if (!std::holds_alternative<ChunkAction>(entry.entry)) continue;
      window.start = std::min(window.start, entry.start);
      window.end = std::max(window.end, entry.end());
    }
  }
  return window;
}

/// Returns the actions of each rank. Their times count from `start`.
std::vector<std::vector<TimedAction>> actions_of(const RunTrace& trace, double start) {
  std::vector<std::vector<TimedAction>> ranks;
  for (const RankTrace& rank : trace.ranks) {
    std::vector<TimedAction>& actions = ranks.emplace_back();
    for (const TimedEntry& entry : rank.list) {
      const auto* const action = std::get_if<ChunkAction>(&entry.entry);
      if (action == nullptr) continue;
      actions.push_back({*action, entry.start - start, entry.end() - start});
    }
  }
  return ranks;
}

}  // namespace

RunAccount account_for_run(const RunTrace& trace) {
  const Window window = window_of(trace);
  const ScheduleFigures figures = figures_of(actions_of(trace, window.start), window.seconds());
  RunAccount account{.schedule = trace.schedule,
                     .ranks_left_out = trace.ranks_left_out,
                     .seconds = figures.makespan};
  for (size_t i = 0; i < trace.ranks.size(); ++i) {
    const RankTrace& rank = trace.ranks[i];
    RankTime time{.rank = rank.rank(), .stage = rank.stage, .busy_seconds = figures.ranks[i].busy};
    time.idle_seconds = figures.makespan - time.busy_seconds;
    for (const TimedEntry& entry : rank.list) {
      if (is_wait(entry.entry)) time.wait_seconds += window.part_of(entry);
    }
    account.ranks.push_back(time);
    account.stages = std::max(account.stages, rank.stage + 1);
    account.clock_uncertainty = std::max(account.clock_uncertainty, rank.step.clock_uncertainty);
  }
  if (account.stages > 1) account.bubble = figures.bubble;
  const std::vector<std::vector<NetworkCall>> calls = network_calls(trace);
  account.network = account_for_network(trace, calls);
  account.path = find_critical_path(trace, calls);
  return account;
}

}  // namespace tessera
