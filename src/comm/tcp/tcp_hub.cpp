#include "comm/tcp/tcp_hub.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/tcp/report_ends.h"
#include "comm/tcp/served_calls.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kAcceptLook{250};
constexpr std::chrono::seconds kAliveEvery{1};
/// A connection that says nothing for so long is none of ours.
constexpr std::chrono::seconds kGreetingPatience{10};
constexpr std::chrono::seconds kLastWordsPatience{2};

WireWriter told(TcpTold what) {
  WireWriter letter;
  letter.put(what);
  return letter;
}

WireWriter told(TcpTold what, std::string_view text) {
  WireWriter letter = told(what);
  letter.put_text(text);
  return letter;
}

}  // namespace

TcpHub::TcpHub(const TcpAddress& address, int ranks, std::string own_host)
    : listener_(address),
      ranks_(ranks),
      members_(static_cast<size_t>(ranks)),
      hosts_(static_cast<size_t>(ranks)) {
  hosts_[0] = std::move(own_host);
  acceptor_ = std::jthread([this](const std::stop_token& stop) { accept(stop); });
}

TcpHub::~TcpHub() {
  acceptor_.request_stop();
  acceptor_.join();
  {
    Lock lock(mutex_);
    if (!not_begun_) not_begun_ = "the first rank has ended";
    await_answers(lock);
  }
  if (world_) world_->fail(0, "it has ended");  // wakes threads that wait in calls
  for (Connection& connection : connections_) connection.socket.shut_down();
  connections_.clear();
}

/// Wakes the threads that wait to tell ranks how the run ends, and lets them.
void TcpHub::await_answers(Lock& lock) {
  closing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kLastWordsPatience, [&] { return answering_ == 0; });
}

void TcpHub::await_ranks(std::chrono::milliseconds patience) {
  {
    Lock lock(mutex_);
    const auto all_here = [&] {
      return std::ranges::none_of(hosts_, [](const std::string& host) { return host.empty(); });
    };
    changed_.wait_for(lock, patience, [&] { return not_begun_ || all_here(); });
    if (!not_begun_ && all_here()) {
      world_ = std::make_unique<World>(ranks_, kRankTimeout, hosts_);
      network_ = find_network();
    } else if (!not_begun_) {
      std::vector<int> missing;
      for (int rank = 0; rank < ranks_; ++rank) {
        if (hosts_[static_cast<size_t>(rank)].empty()) missing.push_back(rank);
      }
      not_begun_ = fmt::format(
          "after {:g} s, {} of the {} processes have not come to rank 0 ({}): rank {}. Find out "
          "what holds them up, and whether their machines reach this one",
          std::chrono::duration<double>(patience).count(), missing.size(), ranks_, hosts_[0],
          fmt::join(missing, ", "));
    }
  }
  changed_.notify_all();
  if (world_ == nullptr) throw Error("{}", *not_begun_);
}

/// Ranks of this machine come by its loopback, which no other machine reaches.
std::string TcpHub::find_network() {
  std::string result;
  for (int rank = 1; rank < ranks_; ++rank) {
    Member& member = members_[static_cast<size_t>(rank)];
    const std::scoped_lock lock(member.mutex);
    if (member.socket == nullptr) continue;
    result = member.socket->network();
    if (hosts_[static_cast<size_t>(rank)] != hosts_[0]) return result;
  }
  return result;
}

std::string TcpHub::text(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts_[static_cast<size_t>(rank)]);
}

void TcpHub::accept(const std::stop_token& stop) {
  auto last_alive = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    try {
      if (auto socket = listener_.accept(kAcceptLook)) begin_to_serve(std::move(*socket));
    } catch (const std::exception& error) {  // no descriptor or no thread is left
      refuse_all(error.what());
      std::this_thread::sleep_for(kAcceptLook);
    }
    if (const auto now = std::chrono::steady_clock::now(); now - last_alive > kAliveEvery) {
      last_alive = now;
      send_alive();
    }
  }
}

void TcpHub::begin_to_serve(TcpSocket socket) {
  const Lock lock(mutex_);
  connections_.remove_if([](const Connection& connection) { return connection.done.load(); });
  Connection& kept = connections_.emplace_back(std::move(socket));
  try {
    kept.handler = std::jthread([this, &kept] {
      try {
        serve(kept.socket);
      } catch (const std::exception&) {
        // The other side is gone, or was none of ours.
      }
      kept.socket.shut_down();
      kept.done = true;
    });
  } catch (...) {
    connections_.pop_back();
    throw;
  }
}

/// A rank that comes cannot be served: the run cannot begin, or go on.
void TcpHub::refuse_all(std::string_view why) {
  const std::string text = fmt::format(
      "{}; {} threads and connections are needed for each group "
      "of ranks here (ulimit -n, ulimit -u)",
      why, ranks_ - 1);
  bool begun = false;
  {
    const Lock lock(mutex_);
    begun = world_ != nullptr;
    if (!begun && !not_begun_) not_begun_ = text;
  }
  changed_.notify_all();
  if (begun) fail(0, text);
}

void TcpHub::serve(TcpSocket& socket) {
  const auto end = std::chrono::steady_clock::now() + kGreetingPatience;
  const auto look = [&] {
    if (std::chrono::steady_clock::now() > end) throw ConnectionLost("it says nothing");
  };
  uint64_t greeting = 0;
  socket.receive(std::as_writable_bytes(std::span(&greeting, 1)), look);
  if (greeting != kTcpGreeting) return;
  std::vector<std::byte> memory;
  WireReader hello = receive_letter(socket, memory, look);
  switch (hello.take<TcpPurpose>()) {
    case TcpPurpose::member:
      return serve_member(socket, hello);
    case TcpPurpose::group:
      return serve_group(socket, hello);
  }
}

/// Why a process cannot be this rank of the run. If it can, it is from now on.
std::optional<std::string> TcpHub::why_refused(int rank, int ranks, const std::string& host) {
  if (ranks != ranks_) {
    return fmt::format("{} was started as one of {} processes, and rank 0 ({}) as one of {}", host,
                       ranks, hosts_[0], ranks_);
  }
  if (rank < 1 || rank >= ranks_) return fmt::format("there is no rank {}", rank);
  const std::string& known = hosts_[static_cast<size_t>(rank)];
  if (!known.empty()) {
    return fmt::format("two processes say that they are rank {}: one on {}, one on {}", rank, known,
                       host);
  }
  return std::nullopt;
}

void TcpHub::serve_member(TcpSocket& socket, WireReader& hello) {
  const auto ranks = hello.take<int>();
  const auto rank = hello.take<int>();
  const std::string host = hello.take_text();
  socket.watch_machine();
  {
    const Answering answering(*this);
    std::optional<std::string> refused;
    {
      const Lock lock(mutex_);
      refused = not_begun_ ? not_begun_ : why_refused(rank, ranks, host);
      if (!refused) {
        // Who finds the host finds the socket too.
        Member& member = members_[static_cast<size_t>(rank)];
        const std::scoped_lock of_member(member.mutex);
        member.socket = &socket;
        hosts_[static_cast<size_t>(rank)] = host;
      }
    }
    if (refused) return send_letter(socket, told(TcpTold::refused, *refused));
  }
  changed_.notify_all();
  try {
    await_begin(rank, socket);
    listen_to(rank, socket);
  } catch (const std::exception&) {
    lose(rank, socket);
    throw;
  }
}

/// Waits until all ranks have come, and tells this one so.
void TcpHub::await_begin(int rank, TcpSocket& socket) {
  const Answering answering(*this);
  std::optional<std::string> refused;
  {
    Lock lock(mutex_);
    while (world_ == nullptr && !not_begun_) {
      if (socket.is_closed()) {
        forget_socket(rank, socket);
        hosts_[static_cast<size_t>(rank)].clear();  // it may come again
        throw ConnectionLost("it is gone before all have come");
      }
      changed_.wait_for(lock, kAcceptLook);
    }
    refused = not_begun_;
  }
  if (refused) {
    tell(rank, told(TcpTold::refused, *refused));
    throw ConnectionLost("the run does not begin");
  }
  WireWriter begun = told(TcpTold::begun);
  for (const std::string& each : hosts_) begun.put_text(each);
  begun.put_text(network_);
  tell(rank, begun);
}

void TcpHub::listen_to(int rank, TcpSocket& socket) {
  std::vector<std::byte> memory;
  for (;;) {
    WireReader said = receive_letter(socket, memory);
    hear(rank, said);
  }
}

void TcpHub::hear(int rank, WireReader& said) {
  switch (said.take<TcpSaid>()) {
    case TcpSaid::work_failed:
      return end_work(rank, said.take_text());
    case TcpSaid::ended:
      return report(rank, said);
    case TcpSaid::abort:
      return abort_others(rank, said.take<int>());
  }
}

/// A rank has ended, and waits for what it is to do about its error.
void TcpHub::report(int rank, WireReader& ended) {
  const Answering answering(*this);
  const std::string error = ended.take_text();
  const auto [who, all] = end(rank, error, std::chrono::milliseconds(ended.take<int64_t>()));
  WireWriter letter = told(TcpTold::report);
  letter.put(who);
  letter.put(all);
  tell(rank, letter);
}

void TcpHub::serve_group(TcpSocket& socket, WireReader& hello) {
  const auto rank = hello.take<int>();
  const std::chrono::milliseconds timeout(hello.take<int64_t>());
  const auto ranks = hello.take_all<int>();
  const std::string lane = hello.take_text();
  {
    const Lock lock(mutex_);
    if (world_ == nullptr || rank < 1 || rank >= ranks_) return;
  }
  WireWriter answer;
  std::unique_ptr<Transport> transport;
  try {
    world_->set_timeout(rank, timeout);
    transport = world_->transport(rank, ranks, lane);
    world_->await_group(rank, ranks, lane);
    answer.put_text("");
  } catch (const std::exception& error) {
    answer.put_text(error.what());
  }
  send_letter(socket, answer);
  if (!transport) return;
  const auto position = static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
  ServedCalls(socket, *transport, position, [&](std::chrono::milliseconds of_call) {
    world_->set_timeout(rank, of_call);
  }).serve();
}

/// Sends nothing more by a socket, if it is that of the rank.
bool TcpHub::forget_socket(int rank, const TcpSocket& socket) {
  Member& member = members_[static_cast<size_t>(rank)];
  const std::scoped_lock lock(member.mutex);
  if (member.socket != &socket) return false;
  member.socket = nullptr;
  return true;
}

/// Notes that a rank's process is gone. It has failed, if it has not ended before.
void TcpHub::lose(int rank, const TcpSocket& socket) {
  if (!forget_socket(rank, socket)) return;  // it was gone before all had come
  {
    const Lock lock(mutex_);
    if (world_ == nullptr || closing_ || ends_.contains(rank)) return;
    gone_.insert(rank);
  }
  fail(rank, gone_text(rank));
  changed_.notify_all();
}

std::string TcpHub::gone_text(int rank) const {
  return fmt::format(
      "its process on {} is gone: it was killed, or its machine or its network is lost",
      hosts_[static_cast<size_t>(rank)]);
}

std::string TcpHub::text_of_missing() {
  const Lock lock(mutex_);
  std::vector<std::string> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (ends_.contains(rank)) continue;
    std::string what = gone_.contains(rank)
                           ? failed_text(rank, gone_text(rank))
                           : fmt::format("{} has not come to the end of the run", text(rank));
    const auto says_it = [&](const auto& end) { return end.second == what; };
    if (std::ranges::none_of(ends_, says_it)) missing.push_back(std::move(what));
  }
  return fmt::format("{}", fmt::join(missing, "; "));
}

void TcpHub::fail(int rank, std::string_view why) {
  note_failure(rank, why);
  world_->fail(rank, why);
  tell_all(told(TcpTold::failed, failed_text(rank, why)));
}

void TcpHub::note_failure(int rank, std::string_view why) {
  const Lock lock(mutex_);
  failures_.insert(failed_text(rank, why));
}

void TcpHub::end_work(int rank, std::string_view why) {
  note_failure(rank, why);
  world_->end_work(rank, why);
  tell_all(told(TcpTold::work_failed, failed_text(rank, why)));
}

/// Whether an error is what a rank has heard of another: that other one has told the rest.
bool TcpHub::is_heard(std::string_view error) {
  const Lock lock(mutex_);
  return failures_.contains(std::string(error));
}

TcpHub::End TcpHub::end(int rank, std::string_view error, std::chrono::milliseconds patience) {
  {
    const Lock lock(mutex_);
    ends_.emplace(rank, error);
  }
  changed_.notify_all();
  if (error.empty() || is_heard(error)) {
    world_->end(rank);
  } else {
    fail(rank, error);
  }
  Lock lock(mutex_);
  changed_.wait_for(lock, patience,
                    [&] { return closing_ || std::ssize(ends_) + std::ssize(gone_) == ranks_; });
  return {report_of(rank, ends_, ranks_), std::ssize(ends_) == ranks_};
}

void TcpHub::abort_others(int rank, int status) {
  bool first_ends_itself = false;
  {
    Lock lock(mutex_);
    await_answers(lock);
    first_ends_itself = ends_.contains(0);
  }
  WireWriter letter = told(TcpTold::abort);
  letter.put(status);
  for (int other = 1; other < ranks_; ++other) {
    if (other != rank) tell(other, letter);
  }
  if (rank == 0 || first_ends_itself) return;
  fmt::print(stderr, "tessera: {} ends the run: not all ranks have come to its end\n", text(rank));
  std::fflush(stderr);
  std::_Exit(status);
}

void TcpHub::tell(int rank, const WireWriter& letter) {
  Member& member = members_[static_cast<size_t>(rank)];
  const std::scoped_lock lock(member.mutex);
  if (member.socket == nullptr) return;
  try {
    send_letter(*member.socket, letter);
  } catch (const ConnectionLost&) {
    // Who listens to it finds that too.
  }
}

void TcpHub::tell_all(const WireWriter& letter) {
  for (int rank = 1; rank < ranks_; ++rank) tell(rank, letter);
}

/// Lets the members know that this process lives. One that does not listen is passed over.
void TcpHub::send_alive() {
  const std::vector<std::byte> letter = letter_bytes(told(TcpTold::alive));
  for (int rank = 1; rank < ranks_; ++rank) {
    Member& member = members_[static_cast<size_t>(rank)];
    const std::unique_lock lock(member.mutex, std::try_to_lock);
    if (lock && member.socket != nullptr) member.socket->try_send(letter);
  }
}

}  // namespace tessera
