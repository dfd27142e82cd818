#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/in_process/world.h"
#include "comm/tcp/tcp_call.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"
#include "comm/transport.h"

namespace tessera {

/// The connection for the replies to one rank's requests. Sends one at a time.
class AnswerSocket {
 public:
  explicit AnswerSocket(TcpSocket& socket) : socket_(socket) {}

  TcpSocket& socket() { return socket_; }
  /// Sends a reply and the bytes that follow it. Ignores a lost connection: the thread that reads
  /// from it handles that.
  void send(const WireWriter& answer, std::span<const std::byte> result);

 private:
  TcpSocket& socket_;
  std::mutex mutex_;
};

/// Makes the calls in one group that a rank of another process requests, by a transport of this
/// process and on a thread of its own, and sends the results (see tcp_transport()).
class ServedGroup {
 public:
  /// Serves the group with a number, in which the rank is one of `ranks`. Refers to the socket of
  /// the replies and the world.
  ServedGroup(AnswerSocket& answers, World& world, int number, int rank, std::vector<int> ranks,
              std::string lane);
  ServedGroup(const ServedGroup&) = delete;
  ServedGroup& operator=(const ServedGroup&) = delete;
  /// Waits for the call that is being made, which World::fail() must end before.
  ~ServedGroup() = default;

  /// Reads a call from a request, receives what the rank gives, and begins to make it. Throws
  /// BadMessage if the request is not a call of the group, or if the call before it is still being
  /// made.
  void begin(WireReader& request);

 private:
  using Bytes = std::unique_ptr<std::byte[]>;

  enum class State : uint8_t { busy, idle, called, broken };

  void run(const std::stop_token& stop);
  bool join();
  bool await_call(const std::stop_token& stop);
  void make_call();
  void move(Bytes& result);
  void exchange(std::byte* result);
  void set_state(State state);
  Bytes receive_given();

  AnswerSocket& answers_;
  World& world_;
  int number_;
  int rank_;
  std::vector<int> ranks_;
  int position_;  // of the rank in ranks_
  std::string lane_;
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;  // guards the state
  std::condition_variable_any changed_;
  State state_ = State::busy;
  // The current call. The thread that reads requests writes it while the state is idle.
  TcpCall call_;
  Bytes given_;  // null if there is no memory for it
  std::jthread thread_;
};

}  // namespace tessera
