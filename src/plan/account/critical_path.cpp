#include "plan/account/critical_path.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tessera {
namespace {

using std::chrono::nanoseconds;

/// An event of a rank through which the path may go.
struct PathEvent {
  nanoseconds start{};
  nanoseconds end{};
  PathKind kind = PathKind::compute;
  std::string name;
  std::optional<Arrival> arrival = {};
};

/// Returns the events of a rank in the order in which they end.
std::vector<PathEvent> path_events(const RunTrace& trace, size_t rank,
                                   const std::vector<NetworkCall>& calls) {
  std::vector<PathEvent> events;
  for (const TraceEvent& event : trace.ranks[rank].step.events) {
    if (is_network_call(trace, event)) continue;
    events.push_back({.start = nanoseconds_of(event.start),
                      .end = nanoseconds_of(event.start + event.duration),
                      .name = event.block});
  }
  for (const NetworkCall& call : calls) {
    events.push_back({.start = call.start,
                      .end = call.end,
                      .kind = PathKind::network,
                      .name = call.axes,
                      .arrival = call.arrival});
  }
  std::ranges::stable_sort(
      events, {}, [](const PathEvent& event) { return std::pair(event.end, event.start); });
  return events;
}

/// Goes along the path, from its end backwards.
class Walk {
 public:
  Walk(const RunTrace& trace, const std::vector<std::vector<NetworkCall>>& calls) : trace_(trace) {
    for (size_t i = 0; i < trace.ranks.size(); ++i) {
      events_.push_back(path_events(trace, i, calls[i]));
      open_.push_back(events_.back().size());
    }
  }

  /// Returns the parts of the path, the last one first, and the calls whose last rank is not known.
  std::pair<std::vector<PathPart>, int64_t> parts() {
    begin_at_last_event();
    while (const PathEvent* const event = take_event_before()) {
      add(PathKind::idle, "", event->end);
      if (event->kind == PathKind::network && !event->arrival) ++unmatched_;
      const bool changes =
          event->arrival && event->arrival->rank != rank_ && event->arrival->at > event->start;
      add(event->kind, event->name, changes ? event->arrival->at : event->start);
      if (changes) rank_ = event->arrival->rank;
    }
    add(PathKind::idle, "", nanoseconds_of(trace_.ranks[rank_].step.start));
    return {std::move(parts_), unmatched_};
  }

 private:
  void begin_at_last_event() {
    for (size_t rank = 0; rank < events_.size(); ++rank) {
      if (events_[rank].empty() || events_[rank].back().end <= time_) continue;
      rank_ = rank;
      time_ = events_[rank].back().end;
    }
  }

  /// Takes the event of the rank that ended last, by now, among those before all that were taken.
  /// Each event is taken at most once, so the walk ends, whatever the times say.
  const PathEvent* take_event_before() {
    const std::vector<PathEvent>& events = events_[rank_];
    size_t& open = open_[rank_];
    while (open > 0 && events[open - 1].end > time_) --open;
    return open > 0 ? &events[--open] : nullptr;
  }

  /// Adds the part that ends now.
  void add(PathKind kind, const std::string& name, nanoseconds start) {
    if (start >= time_) return;
    parts_.push_back({.rank = rank_, .kind = kind, .name = name, .start = start, .end = time_});
    time_ = start;
  }

  const RunTrace& trace_;
  std::vector<std::vector<PathEvent>> events_;  // by rank
  std::vector<size_t> open_;                    // by rank: the events that were not passed yet
  std::vector<PathPart> parts_;
  int64_t unmatched_ = 0;
  size_t rank_ = 0;
  nanoseconds time_{};
};

std::vector<PathRow> rows_of(const std::vector<PathPart>& parts) {
  std::map<std::pair<PathKind, std::string>, nanoseconds> times;
  for (const PathPart& part : parts) times[{part.kind, part.name}] += part.end - part.start;
  std::vector<PathRow> rows;
  for (const auto& [key, time] : times) rows.push_back({key.first, key.second, time});
  std::ranges::stable_sort(rows, std::greater<>(), &PathRow::time);
  return rows;
}

std::vector<PathRun> runs_of(const RunTrace& trace, const std::vector<PathPart>& parts) {
  std::vector<PathRun> runs;
  for (size_t i = 0; i < parts.size(); ++i) {
    const PathPart& part = parts[i];
    if (i == 0 || part.rank != parts[i - 1].rank) {
      runs.push_back({.rank = trace.ranks[part.rank].rank(), .start = part.start});
    }
    runs.back().end = part.end;
    runs.back().by_kind.at(static_cast<size_t>(part.kind)) += part.end - part.start;
  }
  return runs;
}

}  // namespace

std::chrono::nanoseconds CriticalPath::time() const {
  return parts.empty() ? nanoseconds{} : parts.back().end - parts.front().start;
}

CriticalPath find_critical_path(const RunTrace& trace,
                                const std::vector<std::vector<NetworkCall>>& calls) {
  auto [parts, unmatched] = Walk(trace, calls).parts();
  std::ranges::reverse(parts);
  CriticalPath path{.parts = std::move(parts), .rows = {}, .runs = {}, .unmatched = unmatched};
  path.rows = rows_of(path.parts);
  path.runs = runs_of(trace, path.parts);
  return path;
}

}  // namespace tessera
