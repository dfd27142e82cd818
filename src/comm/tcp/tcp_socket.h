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

/// The other side of a connection is gone.
class ConnectionLost : public Error {
 public:
  using Error::Error;
};

/// One end of a connection. Several threads may use it, each in another direction.
class TcpSocket {
 public:
  /// What is called again and again while one waits. It may throw.
  using Look = std::function<void()>;

  /// Owns the descriptor of a connection, and lets small letters go at once.
  explicit TcpSocket(int descriptor);
  TcpSocket(TcpSocket&& other) noexcept;
  TcpSocket& operator=(TcpSocket&&) = delete;
  ~TcpSocket();

  /// Connects to an address, and tries again until somebody listens there. Throws Error with the
  /// system's reason after `patience`, and what `look` throws.
  static TcpSocket connect(const TcpAddress& address, std::chrono::milliseconds patience,
                           const Look& look = {});

  /// Finds out that the other machine is lost although something is on its way to it: after half a
  /// minute, in which a process that is stopped may take nothing. For connections of small letters.
  void watch_machine();

  /// Sends all bytes. Throws ConnectionLost, and what `look` throws.
  void send(std::span<const std::byte> bytes, const Look& look = {});
  /// Sends a few bytes if the system takes them at once. Returns whether it has taken them all.
  bool try_send(std::span<const std::byte> bytes);
  /// Receives so many bytes. Throws ConnectionLost, and what `look` throws.
  void receive(std::span<std::byte> bytes, const Look& look = {});
  /// Receives what is there, at most so many bytes, and returns how many. Throws ConnectionLost.
  size_t receive_some(std::span<std::byte> bytes);

  /// Whether the other side has closed the connection, and nothing of it is left to receive.
  bool is_closed() const;
  /// Ends the connection: the other side, and who waits here, find it lost.
  void shut_down();

  /// The descriptor to wait at.
  int descriptor() const { return descriptor_; }
  /// The name of this machine's network that the connection goes by: "eth0". Empty if unknown.
  std::string network() const;

 private:
  int descriptor_;
};

}  // namespace tessera
