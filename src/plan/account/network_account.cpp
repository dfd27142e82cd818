#include "plan/account/network_account.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera {
namespace {

using std::chrono::nanoseconds;

/// What may be under way at a moment. Of a call whose last rank is not known, only that it is.
enum class Activity : uint8_t { computing, waiting, transferring, unknown };
constexpr size_t kActivities = 4;

/// A change of the number of activities of a kind that are under way.
struct Change {
  nanoseconds time{};
  Activity activity = Activity::computing;
  int by = 0;
};

void add_span(std::vector<Change>& changes, nanoseconds start, nanoseconds end, Activity activity) {
  if (end <= start) return;
  changes.push_back({start, activity, 1});
  changes.push_back({end, activity, -1});
}

/// Returns the spans in which a rank's compute lane computes.
std::vector<Change> computing(const RankTrace& trace) {
  std::vector<Change> changes;
  for (const TraceEvent& event : trace.step.events) {
    if (event.lane != Lane::compute) continue;
    add_span(changes, nanoseconds_of(event.start), nanoseconds_of(event.start + event.duration),
             Activity::computing);
  }
  return changes;
}

/// Adds up the time of some calls of a rank.
NetworkTime time_of(std::string axes, const std::vector<const NetworkCall*>& calls,
                    std::vector<Change> changes) {
  NetworkTime time{.axes = std::move(axes), .calls = std::ssize(calls)};
  for (const NetworkCall* const call : calls) {
    time.bytes += call->bytes;
    if (call->arrival) {
      add_span(changes, call->start, call->arrival->at, Activity::waiting);
      add_span(changes, call->arrival->at, call->end, Activity::transferring);
    } else {
      add_span(changes, call->start, call->end, Activity::unknown);
    }
  }
  std::ranges::sort(changes, {}, &Change::time);
  std::array<int, kActivities> counts{};
  const auto is_under_way = [&](Activity activity) {
    return counts.at(static_cast<size_t>(activity)) > 0;
  };
  nanoseconds now{};
  for (const Change& change : changes) {
    const nanoseconds passed = change.time - now;
    now = change.time;
    const bool transfers = is_under_way(Activity::transferring);
    const bool is_unknown = is_under_way(Activity::unknown);
    if (transfers || is_unknown || is_under_way(Activity::waiting)) {
      time.total += passed;
      nanoseconds& part = is_under_way(Activity::computing) ? time.hidden
                          : transfers                       ? time.transferring
                          : is_unknown                      ? time.not_told_apart
                                                            : time.waiting;
      part += passed;
    }
    counts.at(static_cast<size_t>(change.activity)) += change.by;
  }
  return time;
}

void add_to(NetworkTime& sum, const NetworkTime& time) {
  sum.calls += time.calls;
  sum.bytes += time.bytes;
  sum.total += time.total;
  sum.hidden += time.hidden;
  sum.waiting += time.waiting;
  sum.transferring += time.transferring;
  sum.not_told_apart += time.not_told_apart;
}

}  // namespace

std::vector<NetworkTime> NetworkAccount::sums() const {
  std::map<std::string, NetworkTime> by_axes;
  NetworkTime all{.axes = "all"};
  for (const RankNetwork& rank : ranks) {
    for (const NetworkTime& time : rank.by_axes) {
      NetworkTime& sum = by_axes[time.axes];
      sum.axes = time.axes;
      add_to(sum, time);
    }
    add_to(all, rank.all);
  }
  std::vector<NetworkTime> result;
  for (auto& [axes, time] : by_axes) result.push_back(std::move(time));
  std::ranges::stable_sort(result, std::greater<>(), &NetworkTime::exposed);
  result.push_back(all);
  return result;
}

NetworkAccount account_for_network(const RunTrace& trace,
                                   const std::vector<std::vector<NetworkCall>>& calls) {
  NetworkAccount account;
  for (size_t i = 0; i < trace.ranks.size(); ++i) {
    const RankTrace& rank = trace.ranks[i];
    account.calls_in_compute +=
        std::ranges::count_if(rank.step.events, [](const TraceEvent& event) {
          return event.lane == Lane::compute && !event.groups.empty();
        });
    std::map<std::string, std::vector<const NetworkCall*>> by_axes;
    std::vector<const NetworkCall*> all;
    for (const NetworkCall& call : calls[i]) {
      by_axes[call.axes].push_back(&call);
      all.push_back(&call);
      if (call.arrival) {
        account.uncertainty = std::max(account.uncertainty, call.arrival->uncertainty);
      } else {
        ++account.unmatched[call.match];
      }
    }
    const std::vector<Change> computes = computing(rank);
    RankNetwork& network = account.ranks.emplace_back();
    network.rank = rank.rank();
    for (const auto& [axes, of_axes] : by_axes) {
      network.by_axes.push_back(time_of(axes, of_axes, computes));
    }
    network.all = time_of("all", all, computes);
  }
  return account;
}

}  // namespace tessera
