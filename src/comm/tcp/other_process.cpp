#include "comm/tcp/other_process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/rank_groups.h"
#include "comm/tcp/tcp_hello.h"
#include "comm/tcp/tcp_transport.h"

// The thread receiver_ notes what the first rank says on the member connection. Threads that wait
// for a call or for the end look at these notes and at the time of the last message.

namespace tessera {
namespace {

/// The least silence after which the first rank, which sends a sign of life each second, is lost.
constexpr std::chrono::milliseconds kLeastSilence{5000};
/// The extra time that this rank waits for the first one, which itself waits until `patience` ends.
constexpr std::chrono::milliseconds kGrace{10000};
/// The time between two checks, while this rank waits for its report, that the first rank is there.
constexpr std::chrono::milliseconds kReportLook{250};

std::vector<std::string> texts_of(std::span<const TcpAddress> addresses) {
  std::vector<std::string> texts;
  for (const TcpAddress& address : addresses) texts.push_back(address.text());
  return texts;
}

}  // namespace

OtherProcess::OtherProcess(std::span<const TcpAddress> addresses, int ranks, int rank,
                           const std::string& host, std::string_view token,
                           std::chrono::milliseconds patience)
    : rank_(rank), hosts_{""}, last_received_(Clock::now()) {
  const auto deadline = Clock::now() + patience + kGrace;
  TcpHello hello{TcpPurpose::member, ranks, rank, host, fresh_nonce()};
  std::string at = fmt::format("{}", fmt::join(texts_of(addresses), ", "));
  try {
    auto [member, address] = connect_to_first_rank(addresses, hello, token, patience);
    at = address.text();
    member_.emplace(std::move(member));
    member_->watch_machine();
    hello.purpose = TcpPurpose::calls;
    calls_.emplace(connect_to_first_rank(std::span(&address, 1), hello, token, patience).socket);
    await_begin(ranks, deadline);
  } catch (const ConnectionLost& lost) {
    throw Error(
        "rank {} ({}) has come to {}, but what listens there is no first rank of a run of this "
        "version, or has ended: {}",
        rank_, host, at, lost.what());
  }
  receiver_ = std::jthread([this] { receive_messages(); });
}

OtherProcess::~OtherProcess() {
  member_->shut_down();
  receiver_.join();
}

void OtherProcess::await_begin(int ranks, Clock::time_point deadline) {
  std::vector<std::byte> memory;
  for (;;) {
    WireReader message = receive_message(*member_, memory, [&] {
      if (Clock::now() > deadline) throw ConnectionLost("it does not answer");
    });
    last_received_ = Clock::now();
    const auto kind = message.take_enum(FirstRankMessage::withdrawn, "what the first rank says");
    if (kind == FirstRankMessage::refused) throw Error("{}", message.take_text());
    if (kind != FirstRankMessage::begun) {
      handle(kind, message);
      continue;
    }
    hosts_.clear();
    while (std::ssize(hosts_) < ranks) hosts_.push_back(message.take_text());
    // Ranks on the first rank's machine connect by its loopback, so they take its network.
    const std::string first_network = message.take_text();
    network_ = hosts_[static_cast<size_t>(rank_)] == hosts_[0] ? first_network : member_->network();
    return;
  }
}

std::unique_ptr<Transport> OtherProcess::transport(std::span<const int> ranks,
                                                   std::string_view lane) {
  TESSERA_CHECK(std::ranges::find(ranks, rank_) != ranks.end(), "rank {} asks for the group [{}]",
                rank_, fmt::join(ranks, ", "));
  if (const auto why = failure(lane)) throw Error("{}", *why);
  const int number = calls_->next_group();
  const WireWriter request(CallRequest::group, number, timeout(), ranks, lane);
  try {
    calls_->request(number, request, {}, {}, [this] { require_first_rank(); });
  } catch (const ConnectionLost& lost) {
    throw Error("{}", lost_text(lost.what()));
  }
  return tcp_transport(*calls_, *this, number, std::vector<int>(ranks.begin(), ranks.end()),
                       std::string(lane));
}

void OtherProcess::begin_wait(PlaneWait wait) {
  WireWriter message(MemberMessage::waits);
  put_wait(message, wait);
  send_to_first(message);
}

void OtherProcess::withdraw(const PlaneWithdrawal& withdrawal) {
  WireWriter message(MemberMessage::withdrew);
  put_withdrawal(message, withdrawal);
  send_to_first(message);
}

Processes::Report OtherProcess::report_end(std::string_view error,
                                           std::chrono::milliseconds patience) {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  send_to_first(WireWriter(MemberMessage::ended, error, patience));
  patience_ = patience;
  const auto deadline = Clock::now() + patience + kGrace;
  std::unique_lock lock(mutex_);
  while (!report_ && !lost_ && !is_silent() && Clock::now() < deadline) {
    changed_.wait_for(lock, kReportLook);
  }
  // If the first rank does not answer, each rank reports its own error.
  has_report_ = report_.has_value();
  if (!report_) report_.emplace(error.empty() ? Report::none : Report::own, false);
  reports_ = report_->first != Report::none;
  all_ended_ = report_->second;
  return report_->first;
}

void OtherProcess::end_others(int status) {
  send_to_first(WireWriter(MemberMessage::abort, status));
  // If the first rank is lost, it cannot report an error, so this rank does.
  const std::scoped_lock lock(mutex_);
  if (has_report_ || reports_ || (!lost_ && !is_silent())) return;
  const std::string why =
      lost_ ? lost_text(*lost_)
            : fmt::format("{}. {}", end_timeout_text(text(0), patience_), silent_text(text(0)));
  fmt::print(stderr, "tessera: error: {}: {}\n", text(rank_), why);
}

void OtherProcess::send_to_first(const WireWriter& message) {
  const std::scoped_lock lock(sending_);
  try {
    send_message(*member_, message);
  } catch (const ConnectionLost& lost) {
    note_lost(lost.what());
  }
}

void OtherProcess::receive_messages() {
  std::vector<std::byte> memory;
  try {
    for (;;) {
      WireReader message = receive_message(*member_, memory);
      last_received_ = Clock::now();
      handle(message.take_enum(FirstRankMessage::withdrawn, "what the first rank says"), message);
    }
  } catch (const ConnectionLost& lost) {
    note_lost(lost.what());
  }
}

/// Says what this rank does.
void OtherProcess::answer(WireReader& question) {
  WireWriter message(MemberMessage::answer, question.take<int64_t>());
  put_calls(message, own_calls_.last_calls());
  send_to_first(message);
}

void OtherProcess::handle(FirstRankMessage kind, WireReader& message) {
  if (kind == FirstRankMessage::question) return answer(message);
  const std::scoped_lock lock(mutex_);
  switch (kind) {
    case FirstRankMessage::failed:
      if (!failed_) failed_ = message.take_text();
      break;
    case FirstRankMessage::work_failed:
      if (!work_failed_) work_failed_ = message.take_text();
      break;
    case FirstRankMessage::report: {
      const auto report = message.take_enum(Report::for_all, "a report");
      report_.emplace(report, message.take_flag());
      break;
    }
    case FirstRankMessage::abort: {
      if (report_) break;  // report_end() has its result: this process is ending
      // The rank that ends the run has printed why. Unlike fmt::print, fputs does not throw if the
      // text cannot be written.
      std::fputs(fmt::format("tessera: rank {}: another rank has ended the run\n", rank_).c_str(),
                 stderr);
      if (!ended_) std::_Exit(message.take<int>());
      report_.emplace(Report::none, false);  // report_end() returns, and the process ends by itself
      break;
    }
    case FirstRankMessage::verdict: {
      const auto wait = message.take<int64_t>();
      own_calls_.end_wait(wait, message.take_text());
      break;
    }
    case FirstRankMessage::withdrawn: {
      const PlaneWithdrawal withdrawal = take_withdrawal(message, ranks());
      own_calls_.withdraw(withdrawal.peer, withdrawal.group, withdrawal.why);
      break;
    }
    case FirstRankMessage::question:
    case FirstRankMessage::alive:
    case FirstRankMessage::begun:
    case FirstRankMessage::refused:
      break;
  }
  changed_.notify_all();
}

void OtherProcess::note_lost(std::string_view why) {
  const std::scoped_lock lock(mutex_);
  if (!lost_) lost_ = why;
  changed_.notify_all();
}

bool OtherProcess::is_silent() const {
  return Clock::now() - last_received_.load() > std::max(timeout_.load(), kLeastSilence);
}

void OtherProcess::require_first_rank() const {
  {
    const std::scoped_lock lock(mutex_);
    if (lost_) throw Error("{}", lost_text(*lost_));
  }
  if (is_silent()) throw SilentFirstRank("{}", silence_text());
}

std::string OtherProcess::silence_text() const {
  const std::chrono::duration<double> silence = Clock::now() - last_received_.load();
  return fmt::format("{} (it has not answered for {:.0f} s, longer than run.rank_timeout)",
                     silent_text(fmt::format("{}, through which the ranks meet,", text(0))),
                     silence.count());
}

std::string OtherProcess::lost_text(std::string_view why) const {
  return fmt::format("{}, through which the ranks meet, is lost: {}", text(0), why);
}

std::optional<std::string> OtherProcess::failure(std::string_view lane) const {
  const std::scoped_lock lock(mutex_);
  if (work_failed_ && lane != kControlLane) return work_failed_;
  if (failed_) return failed_;
  if (lost_) return lost_text(*lost_);
  return is_silent() ? std::optional(silence_text()) : std::nullopt;
}

}  // namespace tessera
