#include "pipeline/clock.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"

namespace tessera {
namespace {

/// Executes all lists at once, each rank by its own clock.
class ClockedLists {
 public:
  ClockedLists(const PipelineSchedule& schedule, const ScheduleTimes& times)
      : schedule_(schedule), times_(times), lists_(schedule.ranks.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < lists_.size(); ++rank) {
        while (lists_[rank].entry < schedule_.ranks[rank].size() && step(rank)) moved = true;
      }
    }
  }

  std::vector<StuckRank> stuck() const {
    std::vector<StuckRank> result;
    for (size_t rank = 0; rank < lists_.size(); ++rank) {
      if (lists_[rank].entry == schedule_.ranks[rank].size()) continue;
      result.push_back({.rank = static_cast<int>(rank), .entry = lists_[rank].entry});
    }
    return result;
  }

  std::vector<std::vector<TimedAction>> take_actions() {
    std::vector<std::vector<TimedAction>> actions;
    for (List& list : lists_) actions.push_back(std::move(list.actions));
    return actions;
  }

 private:
  struct List {
    size_t entry = 0;  // the next one
    double clock = 0;
    std::vector<TimedAction> actions;
  };
  /// When the two sides of a message posted it.
  struct Posted {
    std::optional<double> send, receive;
  };

  /// Executes the next entry of a rank. Returns false if it has to wait.
  bool step(size_t rank) {
    List& list = lists_[rank];
    const ScheduleEntry& entry = schedule_.ranks[rank][list.entry];
    if (const auto* action = std::get_if<ChunkAction>(&entry)) {
      const double end = list.clock + times_.of(*action);
      list.actions.push_back({.action = *action, .start = list.clock, .end = end});
      list.clock = end;
    } else if (!communicate(list, std::get<MessageEntry>(entry))) {
      return false;
    }
    ++list.entry;
    return true;
  }

  bool communicate(List& list, const MessageEntry& entry) {
    Posted& posted = posted_[entry.message];
    switch (entry.call) {
      case MessageCall::post_send:
        posted.send = list.clock;
        return true;
      case MessageCall::post_receive:
        posted.receive = list.clock;
        return true;
      case MessageCall::wait_send:
      case MessageCall::wait_receive:
        if (!posted.send || !posted.receive) return false;
        list.clock = std::max(list.clock, std::max(*posted.send, *posted.receive) + times_.latency);
        return true;
    }
    throw InternalError("unknown MessageCall");
  }

  const PipelineSchedule& schedule_;
  const ScheduleTimes& times_;
  std::vector<List> lists_;
  std::map<BoundaryMessage, Posted> posted_;
};

/// Fills in the peaks of a rank from the order of its actions.
void count_peaks(RankFigures& rank) {
  int in_flight = 0;
  int before_gradients = 0;
  int deferred = 0;
  for (const TimedAction& timed : rank.actions) {
    switch (timed.action.kind) {
      case ActionKind::forward:
        ++in_flight;
        ++before_gradients;
        break;
      case ActionKind::backward:
        --in_flight;
        --before_gradients;
        break;
      case ActionKind::input_gradients:
        --before_gradients;
        ++deferred;
        break;
      case ActionKind::weight_gradients:
        --in_flight;
        --deferred;
        break;
    }
    rank.peak_in_flight = std::max(rank.peak_in_flight, in_flight);
    rank.peak_before_gradients = std::max(rank.peak_before_gradients, before_gradients);
    rank.peak_deferred = std::max(rank.peak_deferred, deferred);
  }
}

}  // namespace

double ChunkTimes::of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::forward:
      return forward;
    case ActionKind::backward:
      return input_gradients + weight_gradients;
    case ActionKind::input_gradients:
      return input_gradients;
    case ActionKind::weight_gradients:
      return weight_gradients;
  }
  throw InternalError("unknown ActionKind");
}

ScheduleFigures figures_of(const std::vector<std::vector<TimedAction>>& ranks, double makespan) {
  ScheduleFigures figures{.makespan = makespan};
  double busy = 0;
  for (const std::vector<TimedAction>& actions : ranks) {
    RankFigures& rank = figures.ranks.emplace_back(RankFigures{.actions = actions});
    count_peaks(rank);
    for (const TimedAction& timed : actions) rank.busy += timed.end - timed.start;
    busy += rank.busy;
  }
  const double available = makespan * static_cast<double>(ranks.size());
  figures.bubble = busy > 0 ? (available - busy) / busy : 0;
  return figures;
}

ScheduleFigures measure(const PipelineSchedule& schedule, const ScheduleTimes& times) {
  TESSERA_CHECK(
      times.chunks.size() == 1 || times.chunks.size() == schedule.placement.rank_of_chunk.size(),
      "times of {} chunks for {}", times.chunks.size(), schedule.placement.chunks());
  ClockedLists lists(schedule, times);
  lists.run();
  TESSERA_CHECK(lists.stuck().empty(), "the schedule {} deadlocks", schedule.name);
  const std::vector<std::vector<TimedAction>> actions = lists.take_actions();
  double makespan = 0;
  for (const std::vector<TimedAction>& rank : actions) {
    for (const TimedAction& timed : rank) makespan = std::max(makespan, timed.end);
  }
  return figures_of(actions, makespan);
}

std::vector<StuckRank> stuck_ranks(const PipelineSchedule& schedule) {
  const ScheduleTimes times;
  ClockedLists lists(schedule, times);
  lists.run();
  return lists.stuck();
}

}  // namespace tessera
