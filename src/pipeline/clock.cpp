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

  std::vector<RankFigures> take_ranks() {
    std::vector<RankFigures> ranks;
    for (List& list : lists_) ranks.push_back(std::move(list.figures));
    return ranks;
  }

 private:
  struct List {
    size_t entry = 0;  // the next one
    double clock = 0;
    RankFigures figures;
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
      list.figures.actions.push_back({.action = *action, .start = list.clock, .end = end});
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

double ScheduleTimes::of(const ChunkAction& action) const {
  const double scale =
      chunk_scale.empty() ? 1.0 : chunk_scale.at(static_cast<size_t>(action.chunk));
  switch (action.kind) {
    case ActionKind::forward:
      return forward * scale;
    case ActionKind::backward:
      return (input_gradients + weight_gradients) * scale;
    case ActionKind::input_gradients:
      return input_gradients * scale;
    case ActionKind::weight_gradients:
      return weight_gradients * scale;
  }
  throw InternalError("unknown ActionKind");
}

ScheduleFigures measure(const PipelineSchedule& schedule, const ScheduleTimes& times) {
  TESSERA_CHECK(times.chunk_scale.empty() ||
                    times.chunk_scale.size() == schedule.placement.rank_of_chunk.size(),
                "{} factors for {} chunks", times.chunk_scale.size(), schedule.placement.chunks());
  ClockedLists lists(schedule, times);
  lists.run();
  TESSERA_CHECK(lists.stuck().empty(), "the schedule {} deadlocks", schedule.name);
  ScheduleFigures figures{.ranks = lists.take_ranks()};
  double busy = 0;
  for (RankFigures& rank : figures.ranks) {
    count_peaks(rank);
    for (const TimedAction& timed : rank.actions) {
      rank.busy += timed.end - timed.start;
      figures.makespan = std::max(figures.makespan, timed.end);
    }
    busy += rank.busy;
  }
  const double available = figures.makespan * static_cast<double>(figures.ranks.size());
  figures.bubble = busy > 0 ? (available - busy) / busy : 0;
  return figures;
}

std::vector<StuckRank> stuck_ranks(const PipelineSchedule& schedule) {
  const ScheduleTimes times;
  ClockedLists lists(schedule, times);
  lists.run();
  return lists.stuck();
}

}  // namespace tessera
