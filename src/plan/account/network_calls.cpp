#include "plan/account/network_calls.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::nanoseconds;

constexpr const char* kPipelineAxis = "pipeline";  // of the messages between stages

/// A moment on a rank, which is an index in RunTrace::ranks.
struct RankMoment {
  nanoseconds time{};
  size_t rank = 0;
};

/// Notes in a call that another rank arrived at a moment, if none that is known arrived later.
void arrive(const RunTrace& trace, size_t rank, NetworkCall& call, const RankMoment& moment) {
  if (call.arrival && call.arrival->begun >= moment.time) return;
  const double uncertainty = moment.rank == rank
                                 ? 0
                                 : trace.ranks[rank].step.clock_uncertainty +
                                       trace.ranks[moment.rank].step.clock_uncertainty;
  call.arrival = {.at = std::clamp(moment.time, call.start, call.end),
                  .begun = moment.time,
                  .rank = moment.rank,
                  .uncertainty = uncertainty};
}

/// Adds the calls of operations to those of each rank.
class GroupCalls {
 public:
  explicit GroupCalls(const RunTrace& trace, std::vector<std::vector<NetworkCall>>& calls)
      : trace_(trace), calls_(calls) {}

  void add() {
    for (size_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      for (const TraceEvent& event : trace_.ranks[rank].step.events) {
        if (is_network_call(trace_, event)) add(rank, event);
      }
    }
    for (const auto& [key, by_rank] : by_group_) match(key.second, by_rank);
    for (std::vector<NetworkCall>& of_rank : calls_) {
      for (NetworkCall& call : of_rank) {
        if (call.match != CallMatch::known) call.arrival.reset();
      }
    }
  }

 private:
  using Key = std::pair<Lane, TraceGroup>;
  using CallsByRank = std::map<size_t, std::vector<size_t>>;  // indices in calls_ of the rank

  void add(size_t rank, const TraceEvent& event) {
    const StepTrace& step = trace_.ranks[rank].step;
    std::vector<std::string> axes;
    for (const int index : event.groups) {
      const TraceGroup& group = step.groups[static_cast<size_t>(index)];
      by_group_[{event.lane, group}][rank].push_back(calls_[rank].size());
      axes.insert(axes.end(), group.axes.begin(), group.axes.end());
    }
    calls_[rank].push_back(
        {.axes = join(axes, "+"),
         .lane = event.lane,
         .start = nanoseconds_of(event.start),
         .end = nanoseconds_of(event.start + event.duration),
         .bytes = event.wire_bytes,
         .match = event.groups.empty() ? CallMatch::not_recorded : CallMatch::known});
  }

  CallMatch match_of(const TraceGroup& group, const CallsByRank& by_rank) const {
    if (std::ssize(by_rank) != group.ranks) {
      return trace_.ranks_left_out > 0 ? CallMatch::ranks_left_out : CallMatch::counts_differ;
    }
    const size_t count = by_rank.begin()->second.size();
    const bool are_equal =
        std::ranges::all_of(by_rank, [&](const auto& rank) { return rank.second.size() == count; });
    return are_equal ? CallMatch::known : CallMatch::counts_differ;
  }

  void match(const TraceGroup& group, const CallsByRank& by_rank) {
    const CallMatch match = match_of(group, by_rank);
    if (match != CallMatch::known) {
      for (const auto& [rank, indices] : by_rank) {
        for (const size_t index : indices) calls_[rank][index].match = match;
      }
      return;
    }
    for (size_t k = 0; k < by_rank.begin()->second.size(); ++k) {
      RankMoment last;
      for (const auto& [rank, indices] : by_rank) {
        const nanoseconds start = calls_[rank][indices[k]].start;
        if (start > last.time || rank == by_rank.begin()->first) last = {start, rank};
      }
      for (const auto& [rank, indices] : by_rank) {
        NetworkCall& call = calls_[rank][indices[k]];
        arrive(trace_, rank, call, call.start == last.time ? RankMoment{last.time, rank} : last);
      }
    }
  }

  const RunTrace& trace_;
  std::vector<std::vector<NetworkCall>>& calls_;
  std::map<Key, CallsByRank> by_group_;
};

/// Adds the waits for messages to the calls of each rank.
void add_waits(const RunTrace& trace, std::vector<std::vector<NetworkCall>>& calls) {
  struct Post {
    RankMoment moment;
    double bytes = 0;
  };
  // The posts by the first rank of the pipeline, the message, and whether it is sent.
  std::map<std::tuple<int, BoundaryMessage, bool>, Post> posts;
  const auto for_each = [&](auto&& visit) {
    for (size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      for (const TimedEntry& timed : trace.ranks[rank].list) {
        const auto* const message = std::get_if<MessageEntry>(&timed.entry);
        if (message != nullptr) visit(rank, timed, *message);
      }
    }
  };
  for_each([&](size_t rank, const TimedEntry& timed, const MessageEntry& entry) {
    if (is_wait(timed.entry)) return;
    const bool sends = entry.call == MessageCall::post_send;
    posts[{trace.ranks[rank].pipeline, entry.message, sends}] = {
        .moment = {nanoseconds_of(timed.start), rank}, .bytes = timed.bytes};
  });
  for_each([&](size_t rank, const TimedEntry& timed, const MessageEntry& entry) {
    if (!is_wait(timed.entry)) return;
    const bool sends = entry.call == MessageCall::wait_send;
    const int pipeline = trace.ranks[rank].pipeline;
    NetworkCall call{.axes = kPipelineAxis,
                     .lane = message_lane(entry.message.kind),
                     .start = nanoseconds_of(timed.start),
                     .end = nanoseconds_of(timed.end())};
    if (sends) {
      const auto own = posts.find({pipeline, entry.message, true});
      if (own != posts.end()) call.bytes = own->second.bytes;
    }
    const auto other = posts.find({pipeline, entry.message, !sends});
    if (other != posts.end()) {
      call.match = CallMatch::known;
      // This rank arrives with its wait: it has posted its side before.
      arrive(trace, rank, call, {call.start, rank});
      arrive(trace, rank, call, other->second.moment);
    } else {
      call.match = trace.ranks_left_out > 0 ? CallMatch::ranks_left_out : CallMatch::counts_differ;
    }
    calls[rank].push_back(std::move(call));
  });
}

}  // namespace

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kNanosecondsPerSecond = 1e9;
  return nanoseconds(std::llround(seconds * kNanosecondsPerSecond));
}

double seconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

bool is_network_call(const RunTrace& trace, const TraceEvent& event) {
  return event.lane != Lane::compute && (!event.groups.empty() || !trace.has_groups);
}

std::vector<std::vector<NetworkCall>> network_calls(const RunTrace& trace) {
  std::vector<std::vector<NetworkCall>> calls(trace.ranks.size());
  GroupCalls(trace, calls).add();
  add_waits(trace, calls);
  return calls;
}

}  // namespace tessera
