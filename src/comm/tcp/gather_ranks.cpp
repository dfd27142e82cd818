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
#include "comm/tcp/tcp_listener.h"
#include "comm/tcp/wire.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kGatherLook{250};
constexpr int kMostAcceptedAtOnce = 64;

/// A connection that has not said yet which rank it is of.
struct Stranger {
  TcpSocket socket;
  Clock::time_point end;
  TcpChallenge challenge;
  TcpSignedHello said{};
  size_t received = 0;
};

class Gathering {
 public:
  Gathering(const TcpAddress& address, int ranks, const std::string& own_host,
            std::string_view token, const StrangerLimits& limits)
      : listener_(address),
        token_(token),
        limits_(limits),
        ranks_(static_cast<size_t>(ranks)),
        random_(std::random_device{}()) {
    ranks_[0].host = own_host;
  }

  std::vector<GatheredRank> run(std::chrono::milliseconds patience) {
    const auto end = Clock::now() + patience;
    try {
      while (!all_here()) {
        if (Clock::now() > end) throw Error("{}", missing_text(patience));
        if (await_event(end)) forget_closed();
        hear_strangers();
        accept_some();
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

  /// Waits for an event. Returns whether one of the ranks has closed a connection.
  bool await_event(Clock::time_point end) const {
    std::vector<pollfd> waited;
    const auto wait_at = [&](int descriptor, int events) {
      waited.push_back({.fd = descriptor, .events = static_cast<short>(events), .revents = 0});
    };
    for (const int listening : listener_.descriptors()) wait_at(listening, POLLIN);
    for (const Stranger& stranger : strangers_) wait_at(stranger.socket.descriptor(), POLLIN);
    const auto first_rank = std::ssize(waited);
    for (const GatheredRank& rank : ranks_) {
      if (rank.member) wait_at(rank.member->descriptor(), POLLRDHUP);
      if (rank.calls) wait_at(rank.calls->descriptor(), POLLRDHUP);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const auto wait =
        std::clamp(left, std::chrono::milliseconds(0), std::min(kGatherLook, limits_.patience));
    if (::poll(waited.data(), waited.size(), static_cast<int>(wait.count())) <= 0) return false;
    return std::any_of(waited.begin() + first_rank, waited.end(),
                       [](const pollfd& one) { return one.revents != 0; });
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

  void hear_strangers() {
    const auto now = Clock::now();
    for (auto at = strangers_.begin(); at != strangers_.end();) {
      bool stays = now < at->end;
      try {
        const std::span rest = std::span(at->said).subspan(at->received);
        at->received += at->socket.receive_some(rest);
        if (at->received == at->said.size()) {
          admit(*at);
          stays = false;
        }
      } catch (const ConnectionLost&) {
        stays = false;
      }
      at = stays ? std::next(at) : strangers_.erase(at);
    }
  }

  /// Makes a rank of a stranger that has sent its hello, or tells it why not.
  void admit(Stranger& stranger) {
    const auto hello = read_hello(std::span(stranger.said).first<kHelloBytes>());
    if (!hello) return;
    TcpVerdict verdict;
    if (!judge_hello(token_, stranger.challenge, stranger.said, verdict)) {
      ++other_tokens_;
      stranger.socket.try_send(verdict);
      return;
    }
    const std::string refused = why_refused(*hello);
    WireWriter message;
    message.put_text(refused);
    const std::vector<std::byte> bytes = message_bytes(message);
    if (!stranger.socket.try_send(verdict) || !stranger.socket.try_send(bytes)) return;
    if (!refused.empty()) return;
    GatheredRank& rank = ranks_[static_cast<size_t>(hello->rank)];
    if (hello->purpose == TcpPurpose::calls) {
      rank.calls.emplace(std::move(stranger.socket));
      return;
    }
    rank.host = hello->host;
    rank.process = hello->process;
    rank.member.emplace(std::move(stranger.socket));
  }

  /// Returns why this process cannot be that rank; empty if it can.
  std::string why_refused(const TcpHello& hello) const {
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

  void accept_some() {
    for (int i = 0; i < kMostAcceptedAtOnce; ++i) {
      std::optional<TcpSocket> socket = accept();
      if (!socket) return;
      if (strangers_.size() >= limits_.most) close_one();
      strangers_.push_back({.socket = std::move(*socket),
                            .end = Clock::now() + limits_.patience,
                            .challenge = fresh_challenge()});
      const Stranger& last = strangers_.back();
      if (!strangers_.back().socket.try_send(last.challenge)) strangers_.pop_back();
    }
  }

  /// Accepts a connection. Closes strangers if no descriptor is left for it.
  std::optional<TcpSocket> accept() {
    for (;;) {
      try {
        return listener_.accept();
      } catch (const Error&) {
        if (strangers_.empty()) throw;
        close_one();
      }
    }
  }

  /// Closes a stranger, chosen at random. If it always closed the oldest one, a program that
  /// connects often enough would keep all ranks out. A rank that is closed connects again
  /// (come_to_first()).
  void close_one() {
    std::uniform_int_distribution<size_t> any(0, strangers_.size() - 1);
    strangers_.erase(std::next(strangers_.begin(), static_cast<std::ptrdiff_t>(any(random_))));
  }

  void refuse_all(std::string_view why) {
    WireWriter message;
    message.put(TcpTold::refused);
    message.put_text(why);
    const std::vector<std::byte> bytes = message_bytes(message);
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
    if (other_tokens_ > 0) {
      text +=
          fmt::format(". Connections with another {} came {} times", kTokenVariable, other_tokens_);
    }
    return text;
  }

  TcpListener listener_;
  std::string_view token_;
  StrangerLimits limits_;
  std::vector<GatheredRank> ranks_;
  std::list<Stranger> strangers_;
  std::minstd_rand random_;
  int64_t other_tokens_ = 0;
};

}  // namespace

std::vector<GatheredRank> gather_ranks(const TcpAddress& address, int ranks,
                                       const std::string& own_host, std::string_view token,
                                       std::chrono::milliseconds patience,
                                       const StrangerLimits& limits) {
  return Gathering(address, ranks, own_host, token, limits).run(patience);
}

}  // namespace tessera
