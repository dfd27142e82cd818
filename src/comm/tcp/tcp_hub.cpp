#include "comm/tcp/tcp_hub.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "comm/tcp/report_ends.h"
#include "comm/tcp/served_calls.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kAcceptLook{250};
constexpr std::chrono::seconds kAliveEvery{1};
/// A connection that says nothing for so long is none of ours.
constexpr std::chrono::seconds kGreetingPatience{10};

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
    closing_ = true;
    if (!not_begun_) not_begun_ = "the first rank has ended";
    changed_.notify_all();
    changed_.wait(lock, [&] { return reporting_ == 0; });
  }
  if (world_) world_->fail(0, "it has ended");  // wakes threads that wait in calls
  for (Connection& connection : connections_) connection.socket.shut_down();
  connections_.clear();
}

void TcpHub::await_ranks(std::chrono::milliseconds patience) {
  std::vector<std::string> missing;
  {
    Lock lock(mutex_);
    const auto all_here = [&] {
      return std::ranges::none_of(hosts_, [](const std::string& host) { return host.empty(); });
    };
    if (changed_.wait_for(lock, patience, all_here)) {
      world_ = std::make_unique<World>(ranks_, kRankTimeout, hosts_);
    } else {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (hosts_[static_cast<size_t>(rank)].empty()) missing.push_back(std::to_string(rank));
      }
      not_begun_ = fmt::format(
          "after {:g} s, {} of the {} processes have not come to rank 0 ({}): rank {}. Find out "
          "what holds them up, and whether their machines reach this one",
          std::chrono::duration<double>(patience).count(), missing.size(), ranks_, hosts_[0],
          fmt::join(missing, ", "));
    }
  }
  changed_.notify_all();
  if (!missing.empty()) throw Error("{}", *not_begun_);
}

std::string TcpHub::network() {
  for (Member& member : members_) {
    const std::scoped_lock lock(member.mutex);
    if (member.socket != nullptr) return member.socket->network();
  }
  return "";
}

std::string TcpHub::text(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts_[static_cast<size_t>(rank)]);
}

void TcpHub::accept(const std::stop_token& stop) {
  auto last_alive = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    if (auto socket = listener_.accept(kAcceptLook)) {
      const Lock lock(mutex_);
      connections_.remove_if([](const Connection& connection) { return connection.done.load(); });
      Connection& kept = connections_.emplace_back(std::move(*socket));
      kept.handler = std::jthread([this, &kept] {
        try {
          serve(kept.socket);
        } catch (const std::exception&) {
          // The other side is gone, or was none of ours.
        }
        kept.socket.shut_down();
        kept.done = true;
      });
    }
    if (const auto now = std::chrono::steady_clock::now(); now - last_alive > kAliveEvery) {
      last_alive = now;
      send_alive();
    }
  }
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
  WireWriter begun = told(TcpTold::begun);
  {
    Lock lock(mutex_);
    auto refused = why_refused(rank, ranks, host);
    if (!refused) {
      hosts_[static_cast<size_t>(rank)] = host;
      Member& member = members_[static_cast<size_t>(rank)];
      {
        const std::scoped_lock of_member(member.mutex);
        member.socket = &socket;
      }
      changed_.notify_all();
      changed_.wait(lock, [&] { return world_ != nullptr || not_begun_; });
      refused = not_begun_;
    }
    if (refused) {
      send_letter(socket, told(TcpTold::refused, *refused));
      return;
    }
  }
  for (const std::string& each : hosts_) begun.put_text(each);
  tell(rank, begun);
  try {
    listen_to(rank, socket);
  } catch (const ConnectionLost&) {
    lose(rank);
    throw;
  }
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
  {
    const Lock lock(mutex_);
    ++reporting_;
  }
  const std::string error = ended.take_text();
  const auto [who, all] = end(rank, error, std::chrono::milliseconds(ended.take<int64_t>()));
  WireWriter letter = told(TcpTold::report);
  letter.put(who);
  letter.put(all);
  tell(rank, letter);
  {
    const Lock lock(mutex_);
    --reporting_;
  }
  changed_.notify_all();
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

/// Notes that a rank's process is gone. It has failed, if it has not ended before.
void TcpHub::lose(int rank) {
  {
    Member& member = members_[static_cast<size_t>(rank)];
    const std::scoped_lock lock(member.mutex);
    member.socket = nullptr;
  }
  {
    const Lock lock(mutex_);
    if (closing_ || ends_.contains(rank)) return;
    gone_.insert(rank);
  }
  fail(rank, fmt::format("its process on {} is gone: it was killed, or its machine or its network "
                         "is lost",
                         hosts_[static_cast<size_t>(rank)]));
  changed_.notify_all();
}

void TcpHub::fail(int rank, std::string_view why) {
  world_->fail(rank, why);
  tell_all(told(TcpTold::failed, fmt::format("rank {} failed: {}", rank, why)));
}

void TcpHub::end_work(int rank, std::string_view why) {
  world_->end_work(rank, why);
  tell_all(told(TcpTold::work_failed, fmt::format("rank {} failed: {}", rank, why)));
}

TcpHub::End TcpHub::end(int rank, std::string_view error, std::chrono::milliseconds patience) {
  {
    const Lock lock(mutex_);
    ends_.emplace(rank, error);
  }
  changed_.notify_all();
  if (error.empty()) {
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
  WireWriter letter = told(TcpTold::abort);
  letter.put(status);
  const std::string why =
      fmt::format("{} ends the run: not all ranks have come to its end", text(rank));
  letter.put_text(why);
  for (int other = 1; other < ranks_; ++other) {
    if (other != rank) tell(other, letter);
  }
  if (rank == 0) return;
  {
    const Lock lock(mutex_);
    if (ends_.contains(0)) return;  // this process ends by itself
  }
  fmt::print(stderr, "tessera: error: {}\n", why);
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
