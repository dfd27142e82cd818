#include "comm/tcp/other_process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "comm/rank_groups.h"
#include "comm/tcp/tcp_hello.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/tcp_transport.h"

namespace tessera {
namespace {

/// The least silence after which the first rank counts as lost. It sends a sign of life every
/// second.
constexpr std::chrono::milliseconds kLeastSilence{5000};
/// The extra time that this rank waits for the first one, which itself waits until `patience` ends.
constexpr std::chrono::milliseconds kGrace{10000};
constexpr std::chrono::milliseconds kReportLook{250};

}  // namespace

OtherProcess::OtherProcess(const TcpAddress& address, int ranks, int rank, const std::string& host,
                           std::string_view token, std::chrono::milliseconds patience)
    : rank_(rank), hosts_{""}, heard_(Clock::now()) {
  const auto end = Clock::now() + patience + kGrace;
  TcpHello hello{.purpose = TcpPurpose::member,
                 .ranks = ranks,
                 .rank = rank,
                 .host = host,
                 .process = fresh_nonce()};
  try {
    member_.emplace(come_to_first(address, hello, token, patience));
    member_->watch_machine();
    hello.purpose = TcpPurpose::calls;
    calls_.emplace(come_to_first(address, hello, token, patience));
    await_begin(ranks, end);
  } catch (const ConnectionLost& lost) {
    throw Error(
        "rank {} ({}) has come to {}, but what listens there is no first rank of a run of this "
        "version, or has ended: {}",
        rank_, host, address.text(), lost.what());
  }
  listener_ = std::jthread([this] { listen(); });
}

OtherProcess::~OtherProcess() {
  member_->shut_down();
  listener_.join();
}

void OtherProcess::await_begin(int ranks, Clock::time_point end) {
  std::vector<std::byte> memory;
  for (;;) {
    WireReader told = receive_message(*member_, memory, [&] {
      if (Clock::now() > end) throw ConnectionLost("it does not answer");
    });
    heard_ = Clock::now();
    const auto what = told.take_enum(TcpTold::abort, "what the first rank says");
    if (what == TcpTold::refused) throw Error("{}", told.take_text());
    if (what != TcpTold::begun) {
      hear(what, told);
      continue;
    }
    hosts_.clear();
    for (int each = 0; each < ranks; ++each) hosts_.push_back(told.take_text());
    // Ranks on the first one's machine connect by its loopback, so the network is that of the
    // others.
    const std::string first_network = told.take_text();
    network_ = hosts_[static_cast<size_t>(rank_)] == hosts_[0] ? first_network : member_->network();
    return;
  }
}

Communicator OtherProcess::group(std::span<const int> ranks, std::string_view lane) {
  const auto own = std::ranges::find(ranks, rank_);
  TESSERA_CHECK(own != ranks.end(), "rank {} asks for the group [{}]", rank_,
                fmt::join(ranks, ", "));
  if (const auto known = failure(lane)) throw Error("{}", *known);
  const auto look_around = [this] { look(); };
  const int number = calls_->next_group();
  WireWriter request;
  request.put(TcpAsked::group);
  request.put(number);
  request.put<int64_t>(timeout_.load().count());
  request.put_all(ranks);
  request.put_text(lane);
  try {
    calls_->ask(number, request, {}, {}, look_around);
  } catch (const ConnectionLost& lost) {
    throw Error("{}", lost_text(lost.what()));
  }
  const auto position = static_cast<int>(own - ranks.begin());
  TcpCaller caller{.timeout = [this] { return timeout_.load(); },
                   .look = look_around,
                   .lost = [this](std::string_view why) { return lost_text(why); },
                   .failure = [this, lane = std::string(lane)] { return failure(lane); }};
  return {tcp_transport(*calls_, number, position, std::move(caller)),
          std::vector<int>(ranks.begin(), ranks.end()), position};
}

void OtherProcess::end_work(std::string_view why) {
  WireWriter message;
  message.put(TcpSaid::work_failed);
  message.put_text(why);
  say(message);
}

Processes::Report OtherProcess::report_end(std::string_view error,
                                           std::chrono::milliseconds patience) {
  WireWriter message;
  message.put(TcpSaid::ended);
  message.put_text(error);
  message.put<int64_t>(patience.count());
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  say(message);
  const auto until = Clock::now() + patience + kGrace;
  std::unique_lock lock(mutex_);
  while (!report_ && !lost_ && !is_silent() && Clock::now() < until) {
    changed_.wait_for(lock, kReportLook);
  }
  // If the first rank is lost, each rank reports its own error.
  told_ = report_.has_value();
  if (!report_) report_.emplace(error.empty() ? Report::none : Report::own, false);
  reports_ = report_->first != Report::none;
  all_ended_ = report_->second;
  return report_->first;
}

void OtherProcess::abort(int status) {
  WireWriter message;
  message.put(TcpSaid::abort);
  message.put(status);
  say(message);
  {
    // No other process can report then that the first rank is lost.
    const std::scoped_lock lock(mutex_);
    if (!told_ && !reports_ && (lost_ || is_silent())) {
      fmt::print(stderr, "tessera: error: {}: {}\n", text(rank_),
                 lost_text(lost_.value_or("it does not answer")));
    }
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

void OtherProcess::say(const WireWriter& message) {
  const std::scoped_lock lock(sending_);
  try {
    send_message(*member_, message);
  } catch (const ConnectionLost& lost) {
    note_lost(lost.what());
  }
}

void OtherProcess::listen() {
  std::vector<std::byte> memory;
  try {
    for (;;) {
      WireReader told = receive_message(*member_, memory);
      heard_ = Clock::now();
      hear(told.take_enum(TcpTold::abort, "what the first rank says"), told);
    }
  } catch (const ConnectionLost& lost) {
    note_lost(lost.what());
  }
}

void OtherProcess::hear(TcpTold what, WireReader& told) {
  const std::scoped_lock lock(mutex_);
  switch (what) {
    case TcpTold::failed:
      if (!failed_) failed_ = told.take_text();
      break;
    case TcpTold::work_failed:
      if (!work_failed_) work_failed_ = told.take_text();
      break;
    case TcpTold::report: {
      const auto report = told.take_enum(Report::for_all, "a report");
      report_.emplace(report, told.take_flag());
      break;
    }
    case TcpTold::abort: {
      if (report_) break;  // this rank ends by itself
      // The rank that ends the run has printed why. If this text cannot be written, that is
      // ignored.
      std::fputs(fmt::format("tessera: rank {}: another rank has ended the run\n", rank_).c_str(),
                 stderr);
      if (!ended_) std::_Exit(told.take<int>());
      report_.emplace(Report::none, false);
      break;
    }
    case TcpTold::alive:
    case TcpTold::begun:
    case TcpTold::refused:
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
  return Clock::now() - heard_.load() > std::max(timeout_.load(), kLeastSilence);
}

void OtherProcess::look() const {
  {
    const std::scoped_lock lock(mutex_);
    if (lost_) throw Error("{}", lost_text(*lost_));
  }
  if (!is_silent()) return;
  throw Error("{}", lost_text(fmt::format(
                        "it has not answered for {:.0f} s, longer than run.rank_timeout: it is "
                        "stopped, or cannot be reached",
                        std::chrono::duration<double>(Clock::now() - heard_.load()).count())));
}

std::string OtherProcess::lost_text(std::string_view why) const {
  return fmt::format("{}, through which the ranks meet, is lost: {}", text(0), why);
}

std::optional<std::string> OtherProcess::failure(std::string_view lane) const {
  const std::scoped_lock lock(mutex_);
  if (work_failed_ && lane != kControlLane) return work_failed_;
  if (failed_) return failed_;
  return lost_ ? std::optional(lost_text(*lost_)) : std::nullopt;
}

}  // namespace tessera
