#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/in_process/world.h"
#include "comm/processes.h"
#include "comm/tcp/gather_ranks.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// The meeting point of the processes of a run that meet by TCP, in the process of the first rank.
/// Each other rank has two connections (TcpPurpose). By one it reports how it ended, and learns of
/// failures. By the other it requests the calls of its groups. Threads here make them in a World,
/// in which the first rank takes part directly.
///
/// Each other rank has two threads: `listener` reads the messages of the first connection, `server`
/// runs serve_rank() on the second. Any thread may call any public function.
class TcpHub {
 public:
  /// Creates the hub of ranks that have all come (gather_ranks()), and tells them so. Throws Error,
  /// which is sent to them too, if the system has no threads for them.
  explicit TcpHub(std::vector<GatheredRank> ranks);
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;
  ~TcpHub();

  /// Returns the world in which the ranks meet.
  World& world() { return world_; }
  const World& world() const { return world_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Returns the network of this machine by which the first rank of another machine came, or the
  /// last rank if there is none; empty if it is not known.
  const std::string& network() const { return network_; }

  /// Ends the work on behalf of a rank: see Processes::end_work().
  void end_work(int rank, std::string_view why);

  struct End {
    Processes::Report report;
    bool all;  ///< true if all ranks have ended
  };
  /// Notes the end of a rank's work, and waits for the others: see Processes::report_end().
  End end(int rank, std::string_view error, std::chrono::milliseconds patience);

  /// Returns, after end(), the errors about ranks that have not ended, except those that a rank
  /// reports as its own. `patience` is how long they were waited for.
  std::string missing_text(std::chrono::milliseconds patience);

  /// Ends all processes but those of `rank` and, if it has called end(), the first rank. Those that
  /// wait for the result of end() get it first.
  void abort_others(int rank, int status);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// The state of another rank.
  struct Member {
    std::mutex mutex;      // held while something is sent to the rank
    bool is_gone = false;  // nothing is sent to the rank any more
    TcpSocket* socket = nullptr;
    TcpSocket* calls = nullptr;
    std::jthread listener;
    std::jthread server;
  };

  std::string find_network() const;
  void start();
  void shut_down_all();
  void receive_from(int rank);
  void handle(int rank, WireReader& message);
  void handle_end(int rank, WireReader& ended);
  void await_reports(Lock& lock);
  void note_lost(int rank, std::string_view why);
  std::string why_lost(int rank, const std::exception& error) const;
  void fail(int rank, std::string_view why);
  void note_failure(int rank, std::string_view why);
  bool is_known_failure(std::string_view error);
  void send_to(int rank, const WireWriter& message);
  void send_to_all(const WireWriter& message);
  void send_signs_of_life(const std::stop_token& stop);
  std::string text(int rank) const;

  /// A report that a thread is to send to a rank, counted while this object lives.
  class PendingReport {
   public:
    explicit PendingReport(TcpHub& hub) : hub_(hub) {
      const Lock lock(hub_.mutex_);
      ++hub_.pending_reports_;
    }
    ~PendingReport() {
      {
        const Lock lock(hub_.mutex_);
        --hub_.pending_reports_;
      }
      hub_.changed_.notify_all();
    }
    PendingReport(const PendingReport&) = delete;
    PendingReport& operator=(const PendingReport&) = delete;

   private:
    TcpHub& hub_;
  };

  std::vector<GatheredRank> gathered_;
  const int ranks_;
  const std::vector<std::string> hosts_;  // by rank
  World world_;
  std::string network_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, std::string> ends_;  // by rank: its error or an empty text
  std::map<int, std::string> gone_;  // ranks that were lost before they ended, and why
  std::set<std::string> failures_;   // errors that were sent to all ranks
  int pending_reports_ = 0;          // threads that are to send a rank a report
  bool closing_ = false;             // the run ends: lost connections are no failures any more
  std::vector<Member> members_;      // by rank; the first rank's is not used
  std::jthread alive_sender_;
};

}  // namespace tessera
