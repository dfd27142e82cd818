#include "comm/tcp/first_process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/tcp/serve_rank.h"

// Two threads serve each other rank: receive_messages() on its member connection, serve_rank() on
// its calls connection. This process notes ends and failures, and tells the World and all ranks.

namespace tessera {
namespace {

constexpr std::chrono::seconds kAlivePeriod{1};
/// The longest wait for threads that are to send ranks the results of end().
constexpr std::chrono::seconds kReplyPatience{2};
/// The time within which a rank must answer the question what it does.
constexpr std::chrono::seconds kQuestionPatience{3};
constexpr int kMostStatus = 255;  // of a process

/// Returns the calls of two lists; of a group that is in both, the later one.
std::vector<LastCall> later_calls(std::vector<LastCall> calls, std::vector<LastCall> others) {
  for (LastCall& other : others) {
    const auto same = std::ranges::find(calls, other.group, &LastCall::group);
    if (same == calls.end()) {
      calls.push_back(std::move(other));
    } else if (same->begun < other.begun) {
      *same = std::move(other);
    }
  }
  return calls;
}

std::vector<std::string> hosts_of(const std::vector<GatheredRank>& ranks) {
  std::vector<std::string> hosts;
  for (const GatheredRank& rank : ranks) hosts.push_back(rank.host);
  return hosts;
}

}  // namespace

FirstProcess::FirstProcess(const TcpListener& listener, int ranks, const std::string& host,
                           std::string_view token, std::chrono::milliseconds patience,
                           const HandshakeLimits& limits)
    : gathered_(gather_ranks(listener, ranks, host, token, patience, limits)),

      ranks_(ranks),
      hosts_(hosts_of(gathered_)),
      world_(ranks_, kRankTimeout, hosts_),
      network_(find_network()),
      board_({.tell = [this](int rank, int64_t wait,
                             const std::string& why) { tell_verdict(rank, wait, why); },
              .ask = [this](std::span<const int> asked) { return ask(asked); },
              .text = [this](int rank) { return world_.text(rank); }}),
      members_(gathered_.size()) {
  world_.describe_by([this](std::span<const int> asked) {
    std::vector<std::string> texts;
    for (RankAnswer& answer : ask(asked)) texts.push_back(std::move(answer.text));
    return texts;
  });
  for (int rank = 1; rank < ranks_; ++rank) {
    Member& member = members_[static_cast<size_t>(rank)];
    member.member_socket = &*gathered_[static_cast<size_t>(rank)].member;
    member.calls_socket = &*gathered_[static_cast<size_t>(rank)].calls;
    member.member_socket->watch_machine();
  }
  try {
    for (int rank = 1; rank < ranks_; ++rank) {
      Member& member = members_[static_cast<size_t>(rank)];
      member.listener = std::jthread([this, rank] { receive_messages(rank); });
      member.server = std::jthread([this, rank] {
        serve_rank(*members_[static_cast<size_t>(rank)].calls_socket, world_, rank,
                   [&](const std::exception& error) { note_lost(rank, error); });
      });
    }
    sign_of_life_sender_ =
        std::jthread([this](const std::stop_token& stop) { send_signs_of_life(stop); });
  } catch (const std::system_error& error) {  // the system has no more threads
    const std::string why = fmt::format(
        "rank 0 ({}) cannot serve the other ranks: {}. It has {} threads for them, and one more "
        "for each of their groups (ulimit -u)",
        hosts_[0], error.code().message(), 2 * ranks_ - 1);
    send_to_all(WireWriter(FirstRankMessage::refused, why));
    {
      const Lock lock(mutex_);
      closing_ = true;
    }
    shut_down_connections();
    throw Error("{}", why);
  }
  WireWriter begun(FirstRankMessage::begun);
  for (const std::string& host_of_rank : hosts_) begun.put(host_of_rank);
  begun.put(network_);
  send_to_all(begun);
}

FirstProcess::~FirstProcess() {
  {
    Lock lock(mutex_);
    await_replies(lock);
  }
  board_.stop();
  world_.fail(0, "it has ended");  // wakes threads that wait in calls
  shut_down_connections();
}

std::unique_ptr<Transport> FirstProcess::transport(std::span<const int> ranks,
                                                   std::string_view lane) {
  std::unique_ptr<Transport> of_rank = world_.transport(0, ranks, lane);
  world_.await_group(0, ranks, lane);
  return of_rank;
}

Processes::Report FirstProcess::report_end(std::string_view error,
                                           std::chrono::milliseconds patience) {
  patience_ = patience;
  const End own = end(0, error, patience);
  all_ended_ = own.all_ended;
  reports_ = own.report != Report::none;
  return own.report;
}

void FirstProcess::end_others(int status) {
  const std::string missing = missing_text();
  if (!reports_ && !missing.empty()) fmt::print(stderr, "tessera: error: {}\n", missing);
  abort_others(0, status);
}

void FirstProcess::shut_down_connections() {
  for (int rank = 1; rank < ranks_; ++rank) {
    Member& member = members_[static_cast<size_t>(rank)];
    member.member_socket->shut_down();
    member.calls_socket->shut_down();
  }
}

void FirstProcess::await_replies(Lock& lock) {
  closing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kReplyPatience, [&] { return pending_replies_ == 0; });
}

std::string FirstProcess::find_network() const {
  std::string result;
  for (size_t rank = 1; rank < gathered_.size(); ++rank) {
    result = gathered_[rank].member->network();
    if (hosts_[rank] != hosts_[0]) return result;
  }
  return result;
}

void FirstProcess::receive_messages(int rank) {
  try {
    std::vector<std::byte> memory;
    for (;;) {
      WireReader message =
          receive_message(*members_[static_cast<size_t>(rank)].member_socket, memory);
      handle_message(rank, message);
    }
  } catch (const std::exception& error) {
    note_lost(rank, error);
  }
}

void FirstProcess::handle_message(int rank, WireReader& message) {
  switch (message.take_enum(MemberMessage::answer, "what a rank says")) {
    case MemberMessage::work_failed:
      return fail(rank, message.take_last<std::string>(), /*work_only=*/true);
    case MemberMessage::ended:
      return reply_to_end(rank, message);
    case MemberMessage::abort: {
      const int status = message.take_between(0, kMostStatus, "a status");
      message.require_end();
      return abort_others(rank, status);
    }
    case MemberMessage::waits:
      return board_.add(rank, take_wait_of(message, rank, ranks_));
    case MemberMessage::goes_on:
      return board_.remove(rank, message.take_last<int64_t>());
    case MemberMessage::withdrew:
      return pass_on(rank, take_withdrawal(message, ranks_));
    case MemberMessage::answer:
      return note_answer(rank, message);
  }
}

void FirstProcess::tell_verdict(int rank, int64_t wait, const std::string& why) {
  if (rank == 0) return own_calls_.end_wait(wait, why);
  send_to(rank, WireWriter(FirstRankMessage::verdict, wait, why));
}

void FirstProcess::pass_on(int rank, const PlaneWithdrawal& withdrawal) {
  if (withdrawal.peer == 0) return own_calls_.withdraw(rank, withdrawal.group, withdrawal.why);
  WireWriter message(FirstRankMessage::withdrawn);
  put_withdrawal(message, {rank, withdrawal.group, withdrawal.why});
  send_to(withdrawal.peer, message);
}

void FirstProcess::note_answer(int rank, WireReader& message) {
  const auto number = message.take<int64_t>();
  std::vector<LastCall> calls = take_calls(message);
  {
    const Lock lock(mutex_);
    const auto question = questions_.find(number);
    if (question == questions_.end()) return;  // the answer has come too late
    if (!question->second.asked.contains(rank)) throw BadMessage("an answer of a rank not asked");
    question->second.answers.emplace(rank, std::move(calls));
  }
  changed_.notify_all();
}

std::vector<RankAnswer> FirstProcess::ask(std::span<const int> ranks) {
  int64_t number = 0;
  std::set<int> asked;
  {
    const Lock lock(mutex_);
    number = question_count_++;
    for (const int rank : ranks) {
      if (rank != 0 && !ends_.contains(rank) && !lost_.contains(rank)) asked.insert(rank);
    }
    questions_[number].asked = asked;
  }
  for (const int rank : asked) send_to(rank, WireWriter(FirstRankMessage::question, number));
  Lock lock(mutex_);
  changed_.wait_for(lock, kQuestionPatience, [&] {
    return closing_ || std::ranges::all_of(asked, [&](int rank) {
             return questions_[number].answers.contains(rank) || lost_.contains(rank);
           });
  });
  std::map<int, std::vector<LastCall>> answers = std::move(questions_[number].answers);
  questions_.erase(number);
  lock.unlock();
  std::vector<RankAnswer> result;
  for (const int rank : ranks) {
    if (asked.contains(rank) && !answers.contains(rank)) {
      result.push_back({{}, silent_text(world_.text(rank))});
      continue;
    }
    RankAnswer answer{
        later_calls(world_.last_calls(rank), rank == 0 ? own_calls_.last_calls() : answers[rank]),
        ""};
    answer.text = fmt::format("{} (on {})", calls_text(rank, answer.calls),
                              hosts_[static_cast<size_t>(rank)]);
    result.push_back(std::move(answer));
  }
  return result;
}

/// A guard that counts a reply as pending until it is destroyed.
struct FirstProcess::PendingReply {
  explicit PendingReply(FirstProcess& owner) : process(owner) {
    const Lock lock(process.mutex_);
    ++process.pending_replies_;
  }
  ~PendingReply() {
    {
      const Lock lock(process.mutex_);
      --process.pending_replies_;
    }
    process.changed_.notify_all();
  }
  PendingReply(const PendingReply&) = delete;

  FirstProcess& process;
};

void FirstProcess::reply_to_end(int rank, WireReader& message) {
  const PendingReply pending(*this);
  std::string error;
  std::chrono::milliseconds patience{};
  message.take_last_into(error, patience);
  {
    const Lock lock(mutex_);
    if (ends_.contains(rank)) throw BadMessage("a rank ends twice");
  }
  const auto [report, all_ended] = end(rank, error, patience);
  send_to(rank, WireWriter(FirstRankMessage::report, report, all_ended));
}

void FirstProcess::note_lost(int rank, const std::exception& error) {
  const std::string& host = hosts_[static_cast<size_t>(rank)];
  const bool is_gone = dynamic_cast<const ConnectionLost*>(&error) != nullptr &&
                       dynamic_cast<const BadMessage*>(&error) == nullptr;
  const std::string why =
      is_gone
          ? fmt::format(
                "its process on {} is gone: it was killed, or its machine or its network "
                "is lost",
                host)
          : fmt::format("the first rank cannot serve its process on {}: {}", host, error.what());
  {
    const Lock lock(mutex_);
    if (closing_ || ends_.contains(rank) || !lost_.emplace(rank, why).second) return;
  }
  fail(rank, why, /*work_only=*/false);
  changed_.notify_all();
  Member& member = members_[static_cast<size_t>(rank)];
  {
    const std::scoped_lock lock(member.mutex);
    member.is_gone = true;
  }
  member.member_socket->shut_down();
  member.calls_socket->shut_down();
}

std::string FirstProcess::missing_text() {
  const Lock lock(mutex_);
  std::vector<std::string> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (ends_.contains(rank)) continue;
    const auto lost = lost_.find(rank);
    std::string error = lost != lost_.end() ? failed_text(rank, lost->second)
                                            : end_timeout_text(world_.text(rank), patience_);
    const auto is_reported = [&](const auto& end) { return end.second == error; };
    if (std::ranges::none_of(ends_, is_reported)) missing.push_back(std::move(error));
  }
  return fmt::format("{}", fmt::join(missing, "; "));
}

void FirstProcess::fail(int rank, std::string_view why, bool work_only) {
  const std::string failure = failed_text(rank, why);
  {
    const Lock lock(mutex_);
    failures_.insert(failure);
  }
  world_.fail(rank, why, work_only);
  send_to_all(
      WireWriter(work_only ? FirstRankMessage::work_failed : FirstRankMessage::failed, failure));
}

FirstProcess::End FirstProcess::end(int rank, std::string_view error,
                                    std::chrono::milliseconds patience) {
  Lock lock(mutex_);
  ends_.emplace(rank, error);
  board_.end(rank);
  // If all ranks were told of the error, it is another rank's.
  const bool is_own_failure = !error.empty() && !failures_.contains(std::string(error));
  lock.unlock();
  changed_.notify_all();
  if (is_own_failure) {
    fail(rank, error, /*work_only=*/false);
  } else {
    world_.end(rank);
  }
  lock.lock();
  changed_.wait_for(lock, patience,
                    [&] { return closing_ || std::ssize(ends_) + std::ssize(lost_) == ranks_; });
  return {report_of(rank, ends_, ranks_), std::ssize(ends_) == ranks_};
}

void FirstProcess::abort_others(int rank, int status) {
  bool first_ends_itself = false;  // its report_end() has been called: it ends its own process
  {
    Lock lock(mutex_);
    await_replies(lock);
    first_ends_itself = ends_.contains(0);
  }
  for (int other = 1; other < ranks_; ++other) {
    if (other != rank) send_to(other, WireWriter(FirstRankMessage::abort, status));
  }
  if (rank == 0 || first_ends_itself) return;
  fmt::print(stderr, "tessera: {} ends the run: not all ranks have come to its end\n",
             world_.text(rank));
  std::fflush(stderr);
  std::_Exit(status);
}

void FirstProcess::send_to(int rank, const WireWriter& message) {
  Member& member = members_[static_cast<size_t>(rank)];
  const std::scoped_lock lock(member.mutex);
  if (member.is_gone) return;
  try {
    send_message(*member.member_socket, message);
  } catch (const ConnectionLost&) {
    // receive_messages() finds the loss too, and notes it.
  }
}

void FirstProcess::send_to_all(const WireWriter& message) {
  for (int rank = 1; rank < ranks_; ++rank) send_to(rank, message);
}

void FirstProcess::send_signs_of_life(const std::stop_token& stop) {
  const std::vector<std::byte> message = message_bytes(WireWriter(FirstRankMessage::alive));
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock waiting(mutex);
  while (!stopped.wait_for(waiting, stop, kAlivePeriod, [&] { return stop.stop_requested(); })) {
    for (int rank = 1; rank < ranks_; ++rank) {
      Member& member = members_[static_cast<size_t>(rank)];
      const std::unique_lock lock(member.mutex, std::try_to_lock);
      if (lock && !member.is_gone) member.member_socket->try_send(message);
    }
  }
}

}  // namespace tessera
