#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/in_process/world.h"
#include "comm/tcp/gather_ranks.h"
#include "comm/tcp/plane_letters.h"
#include "comm/tcp/plane_process.h"
#include "comm/tcp/tcp_listener.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wait_board.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// The process of the first rank, in which processes meet that are joined by TCP: the control plane
/// of their run. The ranks meet in a World, in which the first rank makes its calls directly.
///
/// Each other rank has two connections (TcpPurpose), with a thread here for each. On the member
/// connection a rank reports its end and learns of failures. On the calls connection it requests
/// calls, which serve_rank() makes.
class FirstProcess final : public PlaneProcess {
 public:
  /// Waits at the address for the other processes, and admits those that know the token. Throws
  /// Error if they do not come within `patience`, or if the system has no threads for them.
  FirstProcess(const TcpAddress& address, int ranks, const std::string& host,
               std::string_view token, std::chrono::milliseconds patience,
               const HandshakeLimits& limits = {})
      : FirstProcess(TcpListener(address), ranks, host, token, patience, limits) {}
  /// Does the same where somebody listens already. Afterwards the listener may be closed.
  FirstProcess(const TcpListener& listener, int ranks, const std::string& host,
               std::string_view token, std::chrono::milliseconds patience,
               const HandshakeLimits& limits = {});
  ~FirstProcess() override;

  /// Returns this machine's network interface for NCCL, "eth0": the one by which the lowest rank of
  /// another machine has connected; without another machine, the last rank. Empty if not known.
  const std::string& network() const { return network_; }

  int rank() const override { return 0; }
  std::span<const std::string> hosts() const override { return hosts_; }
  void set_timeout(std::chrono::milliseconds timeout) override { world_.set_timeout(0, timeout); }
  std::chrono::milliseconds timeout() const override { return world_.timeout(0); }
  std::unique_ptr<Transport> transport(std::span<const int> ranks, std::string_view lane) override;
  std::optional<std::string> failure(std::string_view lane) const override {
    return world_.failure(lane);
  }
  void begin_wait(PlaneWait wait) override { board_.add(0, std::move(wait)); }
  void end_wait(int64_t wait) override { board_.remove(0, wait); }
  void withdraw(const PlaneWithdrawal& withdrawal) override { pass_on(0, withdrawal); }
  void end_work(std::string_view why) override { fail(0, why, /*work_only=*/true); }
  Report report_end(std::string_view error, std::chrono::milliseconds patience) override;
  bool all_ended() const override { return all_ended_; }
  void end_others(int status) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// The state of another rank.
  struct Member {
    std::mutex mutex;      // held while something is sent by member_socket; guards is_gone
    bool is_gone = false;  // nothing is sent to the rank any more
    TcpSocket* member_socket = nullptr;  // in gathered_, like calls_socket
    TcpSocket* calls_socket = nullptr;
    std::jthread listener;  // runs receive_messages()
    std::jthread server;    // runs serve_rank()
  };

  struct PendingReply;
  struct End {
    Report report;
    bool all_ended;
  };

  /// A question to ranks, and the answers that have come.
  struct Question {
    std::set<int> asked;
    std::map<int, std::vector<LastCall>> answers;
  };

  /// Returns what network() does. Ranks of this machine connect by its loopback, which other
  /// machines do not reach, so it looks for a rank of another machine.
  std::string find_network() const;
  /// Ends all connections, and so wakes the threads that read from them.
  void shut_down_connections();
  /// Handles the messages of a rank, until its member connection is lost.
  void receive_messages(int rank);
  void handle_message(int rank, WireReader& message);
  /// Waits in end() for a rank whose work has ended. Replies whether the rank reports its error.
  void reply_to_end(int rank, WireReader& message);
  /// Notes the end of a rank's work, and waits for the others: see Processes::report_end().
  End end(int rank, std::string_view error, std::chrono::milliseconds patience);
  /// Returns, after end(), the errors about ranks that have not ended, except those that a rank
  /// reports as its own.
  std::string missing_text();
  /// Ends the other processes, when `rank` ends the run (Processes::abort()). If `rank` is not the
  /// first, this process ends too, unless the first rank has called end() and so ends by itself.
  /// Ranks that wait for the result of end() get it first.
  void abort_others(int rank, int status);
  /// Tells the other rank of a message that `rank` has withdrawn it.
  void pass_on(int rank, const PlaneWithdrawal& withdrawal);
  void tell_verdict(int rank, int64_t wait, const std::string& why);
  void note_answer(int rank, WireReader& message);
  /// Asks ranks what they do. Waits for the answers of those that have not ended, for some seconds.
  std::vector<RankAnswer> ask(std::span<const int> ranks);
  /// Wakes the threads that wait in end() for a rank, and gives them time to send their replies.
  void await_replies(Lock& lock);
  /// Notes that the process of a rank is lost: its connection ended by this exception. The rank has
  /// failed, if it has not ended before.
  void note_lost(int rank, const std::exception& error);
  /// Ends the calls of all ranks as World::fail() does, and tells the ranks why.
  void fail(int rank, std::string_view why, bool work_only);
  void send_to(int rank, const WireWriter& message);
  void send_to_all(const WireWriter& message);
  /// Sends ranks a sign of life every second, but skips a rank for which it would have to wait.
  void send_signs_of_life(const std::stop_token& stop);

  std::vector<GatheredRank> gathered_;
  const int ranks_;
  const std::vector<std::string> hosts_;  // by rank
  World world_;
  std::string network_;
  bool all_ended_ = false;
  bool reports_ = false;                  // this rank reports an error
  std::chrono::milliseconds patience_{};  // the argument of report_end()
  std::mutex mutex_;                      // guards what follows, down to questions_
  std::condition_variable changed_;       // notified when one of these changes
  std::map<int, std::string> ends_;       // by rank that has ended: its error or an empty text
  std::map<int, std::string> lost_;       // by rank that was lost before it ended: why
  std::set<std::string> failures_;        // errors that were sent to all ranks
  int pending_replies_ = 0;               // threads that are to send a rank the result of end()
  bool closing_ = false;                  // the run ends: lost connections are no failures any more
  int64_t question_count_ = 0;
  std::map<int64_t, Question> questions_;  // by number; those that wait for answers
  WaitBoard board_;
  std::vector<Member> members_;       // by rank; the first rank's is not used
  std::jthread sign_of_life_sender_;  // runs send_signs_of_life()
};

}  // namespace tessera
