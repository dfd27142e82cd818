#include "comm/tcp/wait_board.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "comm/call_errors.h"
#include "comm/wait_time.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kWatchPeriod{50};
/// The most waits of a rank: it has one for each thread that calls.
constexpr int kMostWaits = 1024;

}  // namespace

WaitBoard::WaitBoard(Functions functions)
    : functions_(std::move(functions)),
      watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

void WaitBoard::stop() {
  watcher_.request_stop();
  if (watcher_.joinable()) watcher_.join();
}

void WaitBoard::add(int rank, PlaneWait wait) {
  const Lock lock(mutex_);
  const auto begin = waits_.lower_bound({rank, INT64_MIN});
  if (std::distance(begin, waits_.lower_bound({rank + 1, INT64_MIN})) >= kMostWaits) {
    throw BadMessage("rank {} waits in more than {} calls", rank, kMostWaits);
  }
  const Key key{rank, wait.number};
  Wait added{.group = group_text(wait.ranks, wait.lane),
             .call = wait.mark.get().text(),
             .hash = wait.mark.get().hash(),
             .deadline = Clock::now() + wait.remaining};
  added.of = std::move(wait);
  if (!waits_.emplace(key, std::move(added)).second) throw BadMessage("a rank waits twice");
  changed_.notify_all();
}

void WaitBoard::remove(int rank, int64_t wait) {
  const Lock lock(mutex_);
  waits_.erase({rank, wait});
}

void WaitBoard::end(int rank) {
  const Lock lock(mutex_);
  ended_.emplace(rank, Clock::now());
}

void WaitBoard::watch(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waits_.empty(); })) {
    find_differences();
    find_ended();
    find_late(lock);
    // A copy: a rank may only be told without the lock.
    std::vector<std::pair<Key, std::string>> verdicts;
    for (const auto& [key, wait] : waits_) {
      const auto broken = broken_.find(wait.group);
      if (broken != broken_.end()) verdicts.emplace_back(key, broken->second);
    }
    for (const auto& [key, why] : verdicts) waits_.erase(key);
    lock.unlock();
    for (const auto& [key, why] : verdicts) functions_.tell(key.first, key.second, why);
    lock.lock();
    changed_.wait_for(lock, stop, kWatchPeriod, [] { return false; });
  }
}

/// Finds ranks of a group that wait in collectives of the same number, or for messages of the same
/// number and ranks, which differ. The numbers must be the same: a rank may have ended a call, such
/// as a broadcast, in which others still are.
void WaitBoard::find_differences() {
  // By group, number, and ranks of a message.
  std::map<std::tuple<std::string, int64_t, int, int>, std::vector<WaitMap::const_pointer>> same;
  for (const auto& entry : waits_) {
    const Fingerprint& mark = entry.second.of.mark.mark;
    const bool is_message = mark.collective == Collective::message;
    same[{entry.second.group, mark.sequence, is_message ? mark.from : -1,
          is_message ? mark.to : -1}]
        .push_back(&entry);
  }
  for (const auto& of_number : same) {
    const std::vector<WaitMap::const_pointer>& waits = of_number.second;
    const auto is_other = [&](const auto* entry) {
      return entry->second.hash != waits.front()->second.hash;
    };
    if (std::ranges::none_of(waits, is_other)) continue;
    const auto& [group, sequence, from, to] = of_number.first;
    if (from >= 0) {
      const auto wait_of = [&](int rank) {
        return std::ranges::find(waits, rank, [](const auto* entry) { return entry->first.first; });
      };
      const auto sender = wait_of(from), receiver = wait_of(to);
      if (sender == waits.end() || receiver == waits.end()) continue;
      broken_.emplace(group, different_messages_text(group, from, (*sender)->second.call, to,
                                                     (*receiver)->second.call));
      continue;
    }
    std::vector<std::string> calls;
    for (const auto* entry : waits) {
      calls.push_back(
          fmt::format("{} made {}", functions_.text(entry->first.first), entry->second.call));
    }
    broken_.emplace(group, disagreement_text(group, calls));
  }
}

/// Finds waits for ranks that have ended, more than kEndGrace ago: all ranks may end for the same
/// reason, shortly after each other.
void WaitBoard::find_ended() {
  const auto before = Clock::now() - kEndGrace;
  for (const auto& [key, wait] : waits_) {
    std::vector<int> ranks;
    std::vector<std::string> texts;
    for (const int rank : wait.of.needs) {
      const auto ended = ended_.find(rank);
      if (ended == ended_.end() || ended->second > before) continue;
      ranks.push_back(rank);
      texts.push_back(fmt::format("{} has done all of its work", functions_.text(rank)));
    }
    if (!ranks.empty())
      broken_.emplace(wait.group, ended_text(wait.call, wait.group, ranks, texts));
  }
}

/// Returns whether a rank is known to wait in the same call.
bool WaitBoard::is_in(int rank, const Wait& wait) const {
  return std::ranges::any_of(waits_, [&](const auto& entry) {
    return entry.first.first == rank && entry.second.group == wait.group &&
           entry.second.call == wait.call;
  });
}

/// Finds waits whose time is over. Asks the ranks that are waited for, all of them at once, because
/// each that is silent takes seconds.
void WaitBoard::find_late(Lock& lock) {
  std::vector<Key> late;
  std::set<int> asked;
  for (const auto& [key, wait] : waits_) {
    if (Clock::now() < wait.deadline || broken_.contains(wait.group)) continue;
    late.push_back(key);
    for (const int rank : wait.of.needs) {
      if (!is_in(rank, wait)) asked.insert(rank);
    }
  }
  if (late.empty()) return;
  const std::vector<int> ranks(asked.begin(), asked.end());
  lock.unlock();
  std::vector<RankAnswer> answers = functions_.ask(ranks);
  lock.lock();
  std::map<int, RankAnswer> by_rank;
  for (size_t i = 0; i < ranks.size(); ++i) by_rank.emplace(ranks[i], std::move(answers[i]));
  for (const Key& key : late) {
    const auto found = waits_.find(key);
    if (found == waits_.end()) continue;  // the wait has ended meanwhile
    broken_.emplace(found->second.group, late_text(key, found->second, by_rank));
  }
}

std::string WaitBoard::late_text(const Key& key, const Wait& wait,
                                 const std::map<int, RankAnswer>& answers) const {
  std::vector<int> waiting{key.first};
  std::vector<int> missing;
  std::vector<std::string> texts;
  for (const int rank : wait.of.needs) {
    const auto answer = answers.find(rank);
    const auto is_here = [&](const LastCall& call) {
      const bool came = call.state == CallState::inside || call.state == CallState::failed;
      return came && call.group == wait.group && call.text == wait.call;
    };
    if (answer == answers.end() || std::ranges::any_of(answer->second.calls, is_here)) {
      waiting.push_back(rank);
    } else {
      missing.push_back(rank);
      texts.push_back(answer->second.text);
    }
  }
  std::ranges::sort(waiting);
  if (missing.empty()) return not_carried_text(wait.call, wait.group, wait.of.timeout);
  return timeout_text(wait.call, wait.group, wait.of.timeout, waiting, missing, texts);
}

}  // namespace tessera
