#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
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
#include "comm/tcp/tcp_letters.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// Where the processes of a run meet that come by TCP: in the process of the first rank. Each other
/// rank has a connection as a member, by which it says how it ended and hears of failures, and one
/// for each of its groups, by which a thread here makes its calls in a World.
class TcpHub {
 public:
  /// Listens at the address. Throws Error if it cannot.
  TcpHub(const TcpAddress& address, int ranks, std::string own_host);
  TcpHub(const TcpHub&) = delete;
  TcpHub& operator=(const TcpHub&) = delete;
  ~TcpHub();

  uint16_t port() const { return listener_.port(); }
  /// Waits for all ranks. Throws Error that names those that have not come within `patience`, and
  /// tells those that have.
  void await_ranks(std::chrono::milliseconds patience);
  /// After await_ranks(): where they meet, their machines, and the network of this one by which
  /// those of other machines came, if there are any. Empty if that is not known.
  World& world() { return *world_; }
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
  std::string text_of_missing();

  /// Ends all other processes that still work. Those that wait for what end() returns get it first.
  void abort_others(int rank, int status);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Another rank that has come.
  struct Member {
    std::mutex mutex;             // is held while something is sent to it
    TcpSocket* socket = nullptr;  // null if it has not come, or is gone
  };

  struct Connection {
    explicit Connection(TcpSocket from) : socket(std::move(from)) {}
    TcpSocket socket;
    std::atomic<bool> done = false;
    std::jthread handler;
  };

  void accept(const std::stop_token& stop);
  void begin_to_serve(TcpSocket socket);
  void refuse_all(std::string_view why);
  void serve(TcpSocket& socket);
  void serve_member(TcpSocket& socket, WireReader& hello);
  void await_begin(int rank, TcpSocket& socket);
  std::optional<std::string> why_refused(int rank, int ranks, const std::string& host);
  std::string find_network();
  void listen_to(int rank, TcpSocket& socket);
  void hear(int rank, WireReader& said);
  void report(int rank, WireReader& ended);
  void await_answers(Lock& lock);
  void serve_group(TcpSocket& socket, WireReader& hello);
  bool forget_socket(int rank, const TcpSocket& socket);
  void lose(int rank, const TcpSocket& socket);
  std::string gone_text(int rank) const;
  void fail(int rank, std::string_view why);
  void note_failure(int rank, std::string_view why);
  bool is_heard(std::string_view error);
  void tell(int rank, const WireWriter& letter);
  void tell_all(const WireWriter& letter);
  void send_alive();
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

  TcpListener listener_;
  const int ranks_;
  std::vector<Member> members_;  // by rank; that of the first is not used
  std::mutex mutex_;             // of what follows
  std::condition_variable changed_;
  std::vector<std::string> hosts_;  // by rank; empty if it has not come. Then nobody writes it
  std::unique_ptr<World> world_;    // when all have come
  std::optional<std::string> not_begun_;  // why the run does not begin
  std::map<int, std::string> ends_;       // by rank: its error or an empty text
  std::set<int> gone_;                    // ranks that are lost before they ended
  std::set<std::string> failures_;        // what ranks are told of others
  std::string network_;
  int answering_ = 0;  // threads that are to tell a rank something before the end
  bool closing_ = false;
  std::list<Connection> connections_;
  std::jthread acceptor_;
};

}  // namespace tessera
