#pragma once

#include <algorithm>
#include <string>

#include "pipeline/run_trace.h"

namespace tessera::testing {

/// Writes by hand what the ranks of a run do in a step. Times are in milliseconds.
class NetworkTrace {
 public:
  explicit NetworkTrace(int ranks) {
    run.schedule = {.name = "1f1b", .micro_batches = 1};
    for (int rank = 0; rank < ranks; ++rank) {
      RankTrace& trace = run.ranks.emplace_back();
      trace.step.origin.rank = rank;
      trace.step.number = 1;
    }
  }

  void compute(int rank, double from, double to, const std::string& block = "attention",
               const std::string& phase = "forward", int layer = -1) {
    add(rank, from, to, {.name = "linear", .block = block, .phase = phase, .layer = layer});
  }
  void call(int rank, double from, double to, const TraceGroup& group,
            Lane lane = Lane::exchanges) {
    call(rank, from, to, std::vector{group}, lane);
  }
  void call(int rank, double from, double to, const std::vector<TraceGroup>& groups, Lane lane) {
    TraceEvent event{.name = "all_gather", .block = "attention", .phase = "forward", .lane = lane};
    event.wire_bytes = 1000;
    std::vector<TraceGroup>& known = of(rank).step.groups;
    for (const TraceGroup& group : groups) {
      if (std::ranges::find(known, group) == known.end()) known.push_back(group);
      event.groups.push_back(static_cast<int>(std::ranges::find(known, group) - known.begin()));
    }
    add(rank, from, to, event);
  }
  void message(int rank, double from, double to, MessageCall call, const BoundaryMessage& message,
               double bytes = 0) {
    of(rank).list.push_back({.entry = MessageEntry{call, message},
                             .start = from / 1e3,
                             .duration = (to - from) / 1e3,
                             .bytes = bytes});
    extend(rank, to);
  }
  RankTrace& of(int rank) { return run.ranks[static_cast<size_t>(rank)]; }

  RunTrace run;

 private:
  void add(int rank, double from, double to, TraceEvent event) {
    event.start = from / 1e3;
    event.duration = (to - from) / 1e3;
    of(rank).step.events.push_back(event);
    extend(rank, to);
  }
  void extend(int rank, double to) {
    double& duration = of(rank).step.duration;
    duration = std::max(duration, to / 1e3);
  }
};

/// A group of two ranks on the axis "data".
inline TraceGroup data_group(int first_rank = 0, int ranks = 2) {
  return {.axes = {"data"}, .stages = {}, .first_rank = first_rank, .ranks = ranks};
}

}  // namespace tessera::testing
