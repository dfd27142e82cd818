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

/// The answers to one rank's calls: by one connection, one at a time.
class AnswerSocket {
 public:
  explicit AnswerSocket(TcpSocket& socket) : socket_(socket) {}

  TcpSocket& socket() { return socket_; }
  /// Sends an answer and the bytes that follow it. What waits for a lost connection is told by who
  /// reads it.
  void send(const WireWriter& answer, std::span<const std::byte> result);

 private:
  TcpSocket& socket_;
  std::mutex mutex_;
};

/// Makes the calls in one group that a rank of another process asks for, by a transport of this one
/// and on a thread of its own, and sends what they give (see TcpTransport).
class ServedGroup {
 public:
  /// The group with a number, in which the rank is one of `ranks`. Refers to the answers' socket
  /// and the world.
  ServedGroup(AnswerSocket& answers, World& world, int number, int rank, std::vector<int> ranks,
              std::string lane);
  ServedGroup(const ServedGroup&) = delete;
  ServedGroup& operator=(const ServedGroup&) = delete;
  /// Waits for the call that is being made: end it by World::fail() before.
  ~ServedGroup() = default;

  /// Takes a call out of a letter, receives what the rank gives, and begins to make it. Throws
  /// BadLetter if the letter is no call of the group, or a call before it is still being made.
  void begin(WireReader& letter);

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
  int position_;  // of the rank among them
  std::string lane_;
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;  // of the state
  std::condition_variable_any changed_;
  State state_ = State::busy;
  // Of one call. Who reads letters writes it while the state is idle.
  TcpCall call_;
  Bytes given_;  // none if there is no memory for it
  std::jthread thread_;
};

}  // namespace tessera
