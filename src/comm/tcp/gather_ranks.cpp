#include "comm/tcp/gather_ranks.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/launch.h"
#include "comm/tcp/tcp_hello.h"
#include "comm/tcp/wire.h"

// One thread serves all connections. It polls the listener, the pending connections, whose
// handshake has not ended, and the connections of the ranks that have come. A pending connection
// must send a whole hello (tcp_hello.h) in time. Then it becomes a connection of its rank, or is
// closed. A process that knows the token is told why.

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

/// The longest poll, and so the delay with which a time limit is noticed.
constexpr std::chrono::milliseconds kGatherPoll{250};
/// The most connections that are accepted before hellos are read again.
constexpr int kMostAcceptedAtOnce = 64;

/// A connection whose handshake has not ended.
struct PendingConnection {
  TcpSocket socket;
  Clock::time_point deadline;  ///< for the handshake
  TcpChallenge challenge;
  TcpSignedHello hello{};
  size_t received_bytes = 0;  ///< of the hello
};

/// Takes the connections of the ranks, and collects their connections.
class RankGatherer {
 public:
  RankGatherer(const TcpListener& listener, int ranks, const std::string& own_host,
               std::string_view token, const HandshakeLimits& limits)
      : listener_(listener),
        token_(token),
        limits_(limits),
        ranks_(static_cast<size_t>(ranks)),
        random_(std::random_device{}()) {
    ranks_[0].host = own_host;
  }

  std::vector<GatheredRank> run(std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    try {
      while (!all_here()) {
        if (Clock::now() > deadline) throw Error("{}", missing_text(patience));
        if (await_event(deadline)) forget_closed();
        read_hellos();
        accept_connections();
      }
    } catch (const Error& error) {
      refuse_all(error.what());
      throw;
    }
    return std::move(ranks_);
  }

 private:
  static bool is_here(const GatheredRank& rank) { return rank.member && rank.calls; }
  bool all_here() const { return std::all_of(ranks_.begin() + 1, ranks_.end(), is_here); }

  /// Waits for an event, until `deadline` at most. Returns whether a rank has closed a connection.
  bool await_event(Clock::time_point deadline) const {
    std::vector<pollfd> waited;
    const auto add = [&](int descriptor, int events) {
      waited.push_back({.fd = descriptor, .events = static_cast<short>(events), .revents = 0});
    };
    for (const int listening : listener_.descriptors()) add(listening, POLLIN);
    for (const PendingConnection& pending : pending_) add(pending.socket.descriptor(), POLLIN);
    const auto first_rank = std::ssize(waited);
    for (const GatheredRank& rank : ranks_) {
      if (rank.member) add(rank.member->descriptor(), POLLRDHUP);
      if (rank.calls) add(rank.calls->descriptor(), POLLRDHUP);
    }
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const auto wait = std::clamp(remaining, std::chrono::milliseconds(0),
                                 std::min(kGatherPoll, limits_.patience));
    if (::poll(waited.data(), waited.size(), static_cast<int>(wait.count())) <= 0) return false;
    return std::any_of(waited.begin() + first_rank, waited.end(),
                       [](const pollfd& rank) { return rank.revents != 0; });
  }

  /// Forgets ranks whose processes are gone. They may connect again.
  void forget_closed() {
    for (GatheredRank& rank : ranks_) {
      if (rank.calls && rank.calls->is_closed()) rank.calls.reset();
      if (!rank.member || !rank.member->is_closed()) continue;
      rank.member.reset();
      rank.calls.reset();
      rank.host.clear();
    }
  }

  /// Reads what pending connections have sent. Drops those that are lost or too slow.
  void read_hellos() {
    const auto now = Clock::now();
    for (auto pending = pending_.begin(); pending != pending_.end();) {
      bool stays = now < pending->deadline;
      try {
        const std::span missing = std::span(pending->hello).subspan(pending->received_bytes);
        pending->received_bytes += pending->socket.receive_some(missing);
        if (pending->received_bytes == pending->hello.size()) {
          admit(*pending);
          stays = false;
        }
      } catch (const ConnectionLost&) {
        stays = false;
      }
      pending = stays ? std::next(pending) : pending_.erase(pending);
    }
  }

  /// Answers a hello. Makes the connection one of its rank, or sends the reason why not.
  void admit(PendingConnection& pending) {
    const auto hello = read_hello(std::span(pending.hello).first<kHelloBytes>());
    if (!hello) return;
    TcpVerdict verdict;
    if (!verify_hello(token_, pending.challenge, pending.hello, verdict)) {
      ++refused_tokens_;
      pending.socket.try_send(verdict);
      return;
    }
    const std::string refused = refusal_of(*hello);
    const std::vector<std::byte> bytes = message_bytes(WireWriter(refused));
    if (!pending.socket.try_send(verdict) || !pending.socket.try_send(bytes)) return;
    if (!refused.empty()) return;
    GatheredRank& rank = ranks_[static_cast<size_t>(hello->rank)];
    if (hello->purpose == TcpPurpose::calls) {
      rank.calls.emplace(std::move(pending.socket));
      return;
    }
    rank.host = hello->host;
    rank.process = hello->process;
    rank.member.emplace(std::move(pending.socket));
  }

  /// Returns why the sender of the hello cannot be the rank that it names; empty if it can.
  std::string refusal_of(const TcpHello& hello) const {
    const std::string& first_host = ranks_[0].host;
    if (hello.ranks != std::ssize(ranks_)) {
      return fmt::format("{} was started as one of {} processes, and rank 0 ({}) as one of {}",
                         hello.host, hello.ranks, first_host, ranks_.size());
    }
    if (hello.rank < 1 || hello.rank >= std::ssize(ranks_)) {
      return fmt::format("there is no rank {}", hello.rank);
    }
    const GatheredRank& known = ranks_[static_cast<size_t>(hello.rank)];
    const bool for_calls = hello.purpose == TcpPurpose::calls;
    if (known.member && (!for_calls || known.process != hello.process || known.calls)) {
      return fmt::format("two processes say that they are rank {}: one on {}, one on {}",
                         hello.rank, known.host, hello.host);
    }
    if (for_calls && !known.member) {
      return fmt::format("rank {} ({}) makes calls before it has come", hello.rank, hello.host);
    }
    return "";
  }

  /// Accepts connections, and sends each its challenge.
  void accept_connections() {
    for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
      std::optional<TcpSocket> socket = accept();
      if (!socket) return;
      if (pending_.size() >= limits_.max_connections) close_random_pending();
      pending_.push_back({std::move(*socket), Clock::now() + limits_.patience, fresh_challenge()});
      PendingConnection& added = pending_.back();
      if (!added.socket.try_send(added.challenge)) pending_.pop_back();
    }
  }

  /// Accepts a connection. Closes pending ones while no descriptor is left for it.
  std::optional<TcpSocket> accept() {
    for (;;) {
      try {
        return listener_.accept();
      } catch (const Error&) {
        if (pending_.empty()) throw;
        close_random_pending();
      }
    }
  }

  /// Closes a random pending connection. If the oldest one were closed, a program that connects
  /// often enough would keep all ranks out. A rank whose connection is closed connects again
  /// (connect_to_first_rank()).
  void close_random_pending() {
    std::uniform_int_distribution<size_t> any(0, pending_.size() - 1);
    pending_.erase(std::next(pending_.begin(), static_cast<std::ptrdiff_t>(any(random_))));
  }

  /// Sends an error to the ranks that have come.
  void refuse_all(std::string_view why) {
    const auto bytes = message_bytes(WireWriter(FirstRankMessage::refused, why));
    for (GatheredRank& rank : ranks_) {
      if (rank.member) rank.member->try_send(bytes);
    }
  }

  std::string missing_text(std::chrono::milliseconds patience) const {
    std::vector<size_t> missing;
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      if (!is_here(ranks_[rank])) missing.push_back(rank);
    }
    std::string text = fmt::format(
        "{}, {} of the {} processes have not come to rank 0 ({}): rank {}. Find out what holds "
        "them up, and whether their machines reach this one",
        waited_text(patience), missing.size(), ranks_.size(), ranks_[0].host,
        fmt::join(missing, ", "));
    if (refused_tokens_ > 0) {
      text += fmt::format(". Connections with another {} came {} times", kTokenVariable,
                          refused_tokens_);
    }
    return text;
  }

  const TcpListener& listener_;
  std::string_view token_;
  HandshakeLimits limits_;
  std::vector<GatheredRank> ranks_;
  std::list<PendingConnection> pending_;
  std::minstd_rand random_;
  int64_t refused_tokens_ = 0;  // connections whose process has another token
};

}  // namespace

std::vector<GatheredRank> gather_ranks(const TcpListener& listener, int ranks,
                                       const std::string& own_host, std::string_view token,
                                       std::chrono::milliseconds patience,
                                       const HandshakeLimits& limits) {
  return RankGatherer(listener, ranks, own_host, token, limits).run(patience);
}

}  // namespace tessera
