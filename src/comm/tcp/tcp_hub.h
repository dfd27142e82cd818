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
#include "comm/tcp/tcp_letters.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// Where the processes of a run meet that come by TCP: in the process of the first rank. Each other
/// rank has a connection as a member, by which it says how it ended and hears of failures, and one
/// for the calls of its groups, which threads here make in a World.
class TcpHub {
 public:
  /// Of ranks that have all come: see gather_ranks(). Tells them so. Throws Error, which they hear
  /// too, if the system has no threads for them.
  explicit TcpHub(std::vector<GatheredRank> ranks);
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;
  ~TcpHub();

  /// Where they meet, their machines, and the network of this one by which those of other machines
  /// came, if there are any. Empty if that is not known.
  World& world() { return world_; }
  const World& world() const { return world_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  const std::string& network() const { return network_; }

  /// See Processes::end_work().
  void end_work(int rank, std::string_view why);

  struct End {
    Processes::Report report;
    bool all;  ///< whether all ranks have ended
  };
  /// See Processes::report_end().
  End end(int rank, std::string_view error, std::chrono::milliseconds patience);

  /// After end(): what is to be said of ranks that have not ended, if no other rank says it.
  /// `patience` is how long they were waited for.
  std::string text_of_missing(std::chrono::milliseconds patience);

  /// Ends all other processes that still work. Those that wait for what end() returns get it first.
  void abort_others(int rank, int status);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Another rank.
  struct Member {
    std::mutex mutex;      // is held while something is sent to it
    bool is_gone = false;  // nothing is sent to it any more
    TcpSocket* socket = nullptr;
    TcpSocket* calls = nullptr;
    std::jthread listener;
    std::jthread server;
  };

  std::string find_network() const;
  void start();
  void shut_down_all();
  void listen_to(int rank);
  void serve_calls(int rank);
  void hear(int rank, WireReader& said);
  void report(int rank, WireReader& ended);
  void await_answers(Lock& lock);
  void lose(int rank, std::string_view why);
  std::string why_lost(int rank, const std::exception& error) const;
  void fail(int rank, std::string_view why);
  void note_failure(int rank, std::string_view why);
  bool is_heard(std::string_view error);
  void tell(int rank, const WireWriter& letter);
  void tell_all(const WireWriter& letter);
  void say_alive(const std::stop_token& stop);
  std::string text(int rank) const;

  /// Notes that a thread is to tell a rank something, while it lives.
  class Answering {
   public:
    explicit Answering(TcpHub& hub) : hub_(hub) {
      const Lock lock(hub_.mutex_);
      ++hub_.answering_;
    }
    ~Answering() {
      {
        const Lock lock(hub_.mutex_);
        --hub_.answering_;
      }
      hub_.changed_.notify_all();
    }
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;

   private:
    TcpHub& hub_;
  };

  std::vector<GatheredRank> gathered_;
  const int ranks_;
  const std::vector<std::string> hosts_;  // by rank
  World world_;
  std::string network_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<int, std::string> ends_;  // by rank: its error or an empty text
  std::map<int, std::string> gone_;  // ranks that are lost before they ended, and why
  std::set<std::string> failures_;   // what ranks are told of others
  int answering_ = 0;                // threads that are to tell a rank something before the end
  bool closing_ = false;
  std::vector<Member> members_;  // by rank; that of the first is not used
  std::jthread alive_;
};

}  // namespace tessera
