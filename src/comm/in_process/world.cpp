#include "comm/in_process/world.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "comm/call_errors.h"
#include "comm/in_process/meeting.h"
#include "comm/rank_groups.h"

// The world keeps the groups of all ranks, each with its Meeting, and spreads ends and failures of
// ranks to the meetings. It calls meetings without its lock, because a meeting calls describe().

namespace tessera {
namespace {

/// Notes that a rank has ended, if it belongs to the group.
void end_in(Meeting& meeting, int rank) {
  const auto member = std::ranges::find(meeting.ranks(), rank);
  if (member == meeting.ranks().end()) return;
  meeting.end(static_cast<size_t>(member - meeting.ranks().begin()));
}

std::vector<int> sorted(std::span<const int> ranks) {
  std::vector<int> result(ranks.begin(), ranks.end());
  std::ranges::sort(result);
  return result;
}

}  // namespace

World::World(int ranks, std::chrono::milliseconds timeout, std::vector<std::string> hosts)
    : ranks_(ranks), hosts_(std::move(hosts)), timeouts_(static_cast<size_t>(std::max(ranks, 0))) {
  TESSERA_CHECK(ranks > 0, "a world of {} ranks", ranks);
  for (int rank = 0; rank < ranks; ++rank) set_timeout(rank, timeout);
}

Communicator World::group(int rank, std::span<const int> ranks, std::string_view lane) {
  auto transport_of_rank = transport(rank, ranks, lane);  // checks that the rank is a member
  return {std::move(transport_of_rank), std::vector<int>(ranks.begin(), ranks.end()),
          static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin())};
}

std::unique_ptr<Transport> World::transport(int rank, std::span<const int> ranks,
                                            std::string_view lane) {
  const auto own = std::ranges::find(ranks, rank);
  TESSERA_CHECK(own != ranks.end(), "rank {} asks for the group [{}]", rank,
                fmt::join(ranks, ", "));
  for (const int member : ranks) {
    TESSERA_CHECK(member >= 0 && member < ranks_ && std::ranges::count(ranks, member) == 1,
                  "the group [{}] in a world of {} ranks", fmt::join(ranks, ", "), ranks_);
  }
  const std::scoped_lock lock(mutex_);
  if (const auto& failure = failure_of(lane)) throw Error(*failure);
  const std::shared_ptr<Meeting> meeting = join(rank, ranks, lane).meeting;
  changed_.notify_all();
  return in_process_transport(meeting, static_cast<int>(own - ranks.begin()),
                              [this, rank, position = static_cast<size_t>(own - ranks.begin()),
                               of_rank = meeting.get()] { leave(rank, position, of_rank); });
}

/// Notes that a rank makes no more calls in a group. The last one to leave removes it.
void World::leave(int rank, size_t position, const Meeting* meeting) {
  LastCall last = meeting->last_call(position);
  const std::scoped_lock lock(mutex_);
  const auto [known, is_first] = left_calls_.try_emplace(rank, last);
  if (!is_first && known->second.begun < last.begun) known->second = std::move(last);
  const auto group =
      std::ranges::find(groups_, meeting, [](const Group& of) { return of.meeting.get(); });
  group->left.push_back(rank);
  if (group->left.size() == group->members.size()) groups_.erase(group);
}

void World::await_group(int rank, std::span<const int> ranks, std::string_view lane) {
  const std::vector<int> members = sorted(ranks);
  std::unique_lock lock(mutex_);
  const auto missing = [&] {
    std::vector<std::string> names;
    const auto group = std::ranges::find_if(
        groups_, [&](const Group& of) { return of.is_of(members, lane) && of.has_now(rank); });
    TESSERA_CHECK(group != groups_.end(), "rank {} waits for a group in which it is not", rank);
    for (const int member : ranks) {
      if (!group->has_had(member)) names.push_back(text(member));
    }
    return names;
  };
  const std::chrono::milliseconds timeout = timeouts_[static_cast<size_t>(rank)];
  changed_.wait_for(lock, timeout, [&] { return failure_of(lane) || missing().empty(); });
  const auto missing_names = missing();
  if (missing_names.empty()) return;
  if (const auto& failure = failure_of(lane)) throw Error(*failure);
  throw Error("{}",
              group_timeout_text(text(rank), group_text(ranks, lane), timeout, missing_names));
}

std::string World::text(int rank) const {
  if (hosts_.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} ({})", rank, hosts_[static_cast<size_t>(rank)]);
}

bool World::Group::is_of(const std::vector<int>& sorted_ranks, std::string_view lane) const {
  return members == sorted_ranks && meeting->lane() == lane;
}

/// Returns the group for which a rank asks: the oldest one in which it has not been. If there is
/// none, makes it. The caller holds the lock.
World::Group& World::join(int rank, std::span<const int> ranks, std::string_view lane) {
  std::vector<int> members = sorted(ranks);
  const auto found = std::ranges::find_if(groups_, [&](const Group& group) {
    if (!group.is_of(members, lane)) return false;
    TESSERA_CHECK(!group.has_now(rank), "rank {} asks for the {} twice", rank,
                  group.meeting->text());
    return !group.has_had(rank);
  });
  if (found == groups_.end()) {
    auto meeting = std::make_shared<Meeting>(
        std::vector<int>(ranks.begin(), ranks.end()), std::string(lane),
        Meeting::AboutRanks{
            .text = [this](int other) { return text(other); },
            .describe = [this](std::span<const int> others) { return describe(others); },
            .timeout = [this](int other) { return timeouts_[static_cast<size_t>(other)].load(); }});
    for (const int ended : ended_) end_in(*meeting, ended);
    groups_.push_back({std::move(members), {rank}, {}, std::move(meeting)});
    return groups_.back();
  }
  if (!std::ranges::equal(found->meeting->ranks(), ranks)) {
    throw Error(
        "{} asks for the group [{}] on lane {}, but {} asked for [{}]; all ranks of a group must "
        "list them in the same order",
        text(rank), fmt::join(ranks, ", "), lane, text(found->joined.front()),
        fmt::join(found->meeting->ranks(), ", "));
  }
  found->joined.push_back(rank);
  return *found;
}

const std::optional<std::string>& World::failure_of(std::string_view lane) const {
  return work_failure_ && lane != kControlLane ? work_failure_ : failure_;
}

std::optional<std::string> World::failure(std::string_view lane) const {
  const std::scoped_lock lock(mutex_);
  return failure_of(lane);
}

void World::end(int rank) {
  {
    const std::scoped_lock lock(mutex_);
    ended_.push_back(rank);
  }
  for (const std::shared_ptr<Meeting>& meeting : meetings()) end_in(*meeting, rank);
}

void World::fail(int rank, std::string_view message, bool work_only) {
  const std::string failure = failed_text(rank, message);
  {
    const std::scoped_lock lock(mutex_);
    if (failure_ || (work_only && work_failure_)) return;
    (work_only ? work_failure_ : failure_) = failure;
  }
  changed_.notify_all();
  for (const std::shared_ptr<Meeting>& meeting : meetings()) {
    if (!work_only || meeting->lane() != kControlLane) meeting->fail(failure);
  }
}

std::vector<std::shared_ptr<Meeting>> World::meetings() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Meeting>> result;
  for (const Group& group : groups_) result.push_back(group.meeting);
  return result;
}

std::vector<LastCall> World::last_calls(int rank) const {
  std::vector<LastCall> calls;
  for (const std::shared_ptr<Meeting>& meeting : meetings()) {
    const auto member = std::ranges::find(meeting->ranks(), rank);
    if (member == meeting->ranks().end()) continue;
    calls.push_back(meeting->last_call(static_cast<size_t>(member - meeting->ranks().begin())));
  }
  const std::scoped_lock lock(mutex_);
  if (const auto left = left_calls_.find(rank); left != left_calls_.end()) {
    calls.push_back(left->second);
  }
  return calls;
}

/// Returns what each rank does: the calls in which it waits, the last one that it gave up, and the
/// last one that it finished.
std::vector<std::string> World::describe(std::span<const int> ranks) const {
  if (describe_) return describe_(ranks);
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(calls_text(rank, last_calls(rank)));
  return texts;
}

}  // namespace tessera
