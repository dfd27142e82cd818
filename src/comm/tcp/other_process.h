#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/tcp/call_connection.h"
#include "comm/tcp/plane_process.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// The error of a wait for a first rank that does not answer.
class SilentFirstRank : public Error {
 public:
  using Error::Error;
};

/// The process of a rank other than the first. It has two TCP connections to
/// the first rank's process (TcpPurpose), which makes the calls of this rank's groups
/// (serve_rank()). The first rank counts as lost if it sends nothing for longer than the timeout.
class OtherProcess final : public PlaneProcess {
 public:
  /// Connects to the first rank at one of its addresses, and waits for the other ranks. Throws
  /// Error if the first rank does not listen there, does not know the token or refuses this rank,
  /// or if not all ranks come within `patience`.
  OtherProcess(std::span<const TcpAddress> addresses, int ranks, int rank, const std::string& host,
               std::string_view token, std::chrono::milliseconds patience);
  OtherProcess(const TcpAddress& address, int ranks, int rank, const std::string& host,
               std::string_view token, std::chrono::milliseconds patience)
      : OtherProcess(std::span(&address, 1), ranks, rank, host, token, patience) {}
  ~OtherProcess() override;

  /// Returns the network interface by which this machine reaches other machines of the run, for
  /// NCCL: "eth0". Empty if it is not known.
  const std::string& network() const { return network_; }

  int rank() const override { return rank_; }
  std::span<const std::string> hosts() const override { return hosts_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  std::chrono::milliseconds timeout() const override { return timeout_; }
  std::unique_ptr<Transport> transport(std::span<const int> ranks, std::string_view lane) override;
  std::optional<std::string> failure(std::string_view lane) const override;
  void begin_wait(PlaneWait wait) override;
  void end_wait(int64_t wait) override { send_to_first(WireWriter(MemberMessage::goes_on, wait)); }
  void withdraw(const PlaneWithdrawal& withdrawal) override;
  void end_work(std::string_view why) override {
    send_to_first(WireWriter(MemberMessage::work_failed, why));
  }
  Report report_end(std::string_view error, std::chrono::milliseconds patience) override;
  bool all_ended() const override { return all_ended_; }
  void end_others(int status) override;

  /// Throws SilentFirstRank if the first rank is silent, and Error if the connection to it is lost.
  void require_first_rank() const;
  /// Returns the error of a call in which the connection to the first rank was lost.
  std::string lost_text(std::string_view why) const;

 private:
  using Clock = std::chrono::steady_clock;

  /// Waits until the first rank says that all ranks have come.
  void await_begin(int ranks, Clock::time_point deadline);
  void receive_messages();  // on receiver_, until the member connection is lost
  void handle(FirstRankMessage kind, WireReader& message);
  void answer(WireReader& question);
  void note_lost(std::string_view why);
  /// Returns whether nothing has come from the first rank for too long.
  bool is_silent() const;
  /// Returns the error of a first rank that is_silent().
  std::string silence_text() const;
  void send_to_first(const WireWriter& message);

  int rank_;
  std::vector<std::string> hosts_;
  std::atomic<std::chrono::milliseconds> timeout_{kRankTimeout};
  std::atomic<Clock::time_point> last_received_;  // when the last message of the first rank came
  std::string network_;
  bool all_ended_ = false;
  bool has_report_ = false;               // the first rank has answered report_end()
  bool reports_ = false;                  // this rank reports an error
  std::chrono::milliseconds patience_{};  // the argument of report_end()
  std::optional<TcpSocket> member_;
  std::optional<CallConnection> calls_;
  std::mutex sending_;        // held while a message is sent by member_
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<std::string> lost_;                // why the first rank is lost
  bool ended_ = false;                             // this rank's work has ended
  std::optional<std::string> failed_;              // why calls of all lanes fail
  std::optional<std::string> work_failed_;         // why calls of all lanes but kControlLane fail
  std::optional<std::pair<Report, bool>> report_;  // what report_end() and all_ended() return
  std::jthread receiver_;
};

}  // namespace tessera
