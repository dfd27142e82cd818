#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/in_process/world.h"
#include "comm/own_calls.h"
#include "comm/processes.h"
#include "comm/tcp/gather_ranks.h"
#include "comm/tcp/plane_letters.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wait_board.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// The meeting point of processes that meet by TCP, in the process of the first rank. The ranks
/// meet in a World, in which the first rank makes its calls directly.
///
/// Each other rank has two connections (TcpPurpose), with a thread here for each. On the member
/// connection a rank reports its end and learns of failures. On the calls connection it requests
/// calls, which serve_rank() makes. Any thread may call any public function.
class TcpHub {
 public:
  /// Creates the hub of ranks that have all come (gather_ranks()), and tells them so. If the system
  /// has no threads for them, throws Error and sends its text to them. `own_calls` are those of the
  /// first rank.
  TcpHub(std::vector<GatheredRank> ranks, OwnCalls& own_calls);
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;
  ~TcpHub();

  World& world() { return world_; }
  const World& world() const { return world_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Returns this machine's network interface for NCCL, "eth0": the one by which the lowest rank of
  /// another machine has connected; without another machine, the last rank. Empty if not known.
  const std::string& network() const { return network_; }

  /// Ends the work on behalf of a rank: see Processes::end_work().
  void end_work(int rank, std::string_view why) { fail(rank, why, /*work_only=*/true); }

  /// Notes a wait of a rank, and its end: see PlaneProcess.
  void begin_wait(int rank, PlaneWait wait) { board_.add(rank, std::move(wait)); }
  void end_wait(int rank, int64_t wait) { board_.remove(rank, wait); }
  /// Tells the other rank of a message that `rank` has withdrawn it.
  void withdraw(int rank, const PlaneWithdrawal& withdrawal);

  struct End {
    Processes::Report report;
    bool all_ended;
  };
  /// Notes the end of a rank's work, and waits for the others: see Processes::report_end().
  End end(int rank, std::string_view error, std::chrono::milliseconds patience);

  /// Returns, after end(), the errors about ranks that have not ended, except those that a rank
  /// reports as its own. `patience` is how long they were waited for.
  std::string missing_text(std::chrono::milliseconds patience);

  /// Ends the other processes, when `rank` ends the run (Processes::abort()). If `rank` is not the
  /// first, this process ends too, unless the first rank has called end() and so ends by itself.
  /// Ranks that wait for the result of end() get it first.
  void abort_others(int rank, int status);

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
  std::mutex mutex_;                 // guards what follows, down to questions_
  std::condition_variable changed_;  // notified when one of these changes
  std::map<int, std::string> ends_;  // by rank that has ended: its error or an empty text
  std::map<int, std::string> lost_;  // by rank that was lost before it ended: why
  std::set<std::string> failures_;   // errors that were sent to all ranks
  int pending_replies_ = 0;          // threads that are to send a rank the result of end()
  bool closing_ = false;             // the run ends: lost connections are no failures any more
  int64_t question_count_ = 0;
  std::map<int64_t, Question> questions_;  // by number; those that wait for answers
  OwnCalls& own_calls_;
  WaitBoard board_;
  std::vector<Member> members_;       // by rank; the first rank's is not used
  std::jthread sign_of_life_sender_;  // runs send_signs_of_life()
};

}  // namespace tessera
