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
  /// After await_ranks(): where they meet, their machines, and the network that they came by.
  World& world() { return *world_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  std::string network();

  /// See Processes::end_work().
  void end_work(int rank, std::string_view why);

  struct End {
    Processes::Report report;
    bool all;  ///< whether all ranks have ended
  };
  /// See Processes::report_end().
  End end(int rank, std::string_view error, std::chrono::milliseconds patience);

  /// Ends all other processes that still work.
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
  void serve(TcpSocket& socket);
  void serve_member(TcpSocket& socket, WireReader& hello);
  std::optional<std::string> why_refused(int rank, int ranks, const std::string& host);
  void listen_to(int rank, TcpSocket& socket);
  void hear(int rank, WireReader& said);
  void report(int rank, WireReader& ended);
  void serve_group(TcpSocket& socket, WireReader& hello);
  void lose(int rank);
  void fail(int rank, std::string_view why);
  void tell(int rank, const WireWriter& letter);
  void tell_all(const WireWriter& letter);
  void send_alive();
  std::string text(int rank) const;

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
  int reporting_ = 0;                     // ranks that wait for what end() returns
  bool closing_ = false;
  std::list<Connection> connections_;
  std::jthread acceptor_;
};

}  // namespace tessera
