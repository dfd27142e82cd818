#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
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
  /// A function that a wait calls about four times a second. What it throws ends the wait.
  using Look = std::function<void()>;

  /// Takes the descriptor of a connection, and lets small messages be sent at once.
  explicit TcpSocket(int descriptor);
  TcpSocket(TcpSocket&& other) noexcept;
  TcpSocket& operator=(TcpSocket&&) = delete;
  ~TcpSocket();

  /// Connects to an address. Tries again until something listens there, for `patience` at most;
  /// then throws Error with the system's reason.
  static TcpSocket connect(const TcpAddress& address, std::chrono::milliseconds patience);

  /// Connects to the address, or to one of the IP addresses of its host. Tries each once, for
  /// `patience` at most. Returns none if nothing listens there, and sets `why` to the reason.
  /// Throws Error if the host is unknown.
  static std::optional<TcpSocket> try_connect(const TcpAddress& address,
                                              std::chrono::milliseconds patience, std::string& why);

  /// Makes the system report the connection as lost if the other machine does not acknowledge sent
  /// bytes within half a minute. This is only for connections of small messages: the machine of a
  /// stopped process, which does not read, acknowledges no more once its buffers are full.
  void watch_machine();

  /// Sends all bytes. Throws ConnectionLost.
  void send(std::span<const std::byte> bytes, const Look& look = {});
  /// Sends a few bytes without a wait. Returns whether the system has taken all of them.
  bool try_send(std::span<const std::byte> bytes);
  /// Receives until `bytes` is full. Throws ConnectionLost.
  void receive(std::span<std::byte> bytes, const Look& look = {});
  /// Receives bytes that have arrived, at most as many as `bytes` holds, without a wait. Returns
  /// their number, which may be 0. Throws ConnectionLost.
  size_t receive_some(std::span<std::byte> bytes);

  /// Returns whether the connection is closed or lost, and no byte is left to receive.
  bool is_closed() const;
  /// Ends the connection. The other side, and threads that wait in this object, find it lost.
  void shut_down();

  /// Returns the descriptor to poll.
  int descriptor() const { return descriptor_; }
  /// Returns the name of the network interface of this end: "eth0". Empty if it is not known.
  std::string network() const;

 private:
  int descriptor_;
};

}  // namespace tessera
