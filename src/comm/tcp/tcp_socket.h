#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/error.h"
#include "comm/tcp/tcp_address.h"

namespace tessera {

/// Returns the system's text for a value of errno.
std::string system_reason(int error);

/// The error of a connection whose other side is gone.
class ConnectionLost : public Error {
 public:
  using Error::Error;
};

/// One end of a TCP connection. One thread may send while another receives.
class TcpSocket {
 public:
  /// A function that is called about four times a second during a wait. It throws to end the wait.
  using Look = std::function<void()>;

  /// Takes the descriptor of a connection, and lets small messages be sent at once.
  explicit TcpSocket(int descriptor);
  TcpSocket(TcpSocket&& other) noexcept;
  TcpSocket& operator=(TcpSocket&&) = delete;
  ~TcpSocket();

  /// Connects to an address, and tries again until something listens there. Throws Error with the
  /// system's reason after `patience`, and what `look` throws.
  static TcpSocket connect(const TcpAddress& address, std::chrono::milliseconds patience,
                           const Look& look = {});

  /// Makes the system report the other machine as lost if it does not acknowledge sent bytes within
  /// half a minute. A process that is stopped for as long is then lost too, once its buffers are
  /// full. So this is only for connections of small messages.
  void watch_machine();

  /// Sends all bytes. Throws ConnectionLost, and what `look` throws.
  void send(std::span<const std::byte> bytes, const Look& look = {});
  /// Sends a few bytes if the system takes them at once. Returns whether it has taken them all.
  bool try_send(std::span<const std::byte> bytes);
  /// Receives until `bytes` is full. Throws ConnectionLost, and what `look` throws.
  void receive(std::span<std::byte> bytes, const Look& look = {});
  /// Receives what is there, until `bytes` is full, and returns how many bytes. Throws
  /// ConnectionLost.
  size_t receive_some(std::span<std::byte> bytes);

  /// Returns whether the other side has closed the connection, and nothing of it is left to
  /// receive.
  bool is_closed() const;
  /// Ends the connection: the other side, and threads that wait here, find it lost.
  void shut_down();

  /// Returns the descriptor to poll.
  int descriptor() const { return descriptor_; }
  /// Returns the name of the network interface of this end: "eth0". Empty if it is not known.
  std::string network() const;

 private:
  int descriptor_;
};

}  // namespace tessera
