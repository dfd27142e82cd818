#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

struct sockaddr;

namespace tessera {

/// Where ranks meet: a machine's name, or the address of one of its networks, and a port.
struct TcpAddress {
  std::string host;
  uint16_t port = 0;

  std::string text() const;
};

/// Reads "node0:29500", "10.0.0.1:29500" or "[fd00::1]:29500". Throws Error that names the variable
/// if the text is none of these.
TcpAddress parse_tcp_address(std::string_view variable, std::string_view text);

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

  explicit TcpSocket(int descriptor) : descriptor_(descriptor) {}
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
  /// Sends a few bytes if the system takes them at once. Does not throw.
  void try_send(std::span<const std::byte> bytes);
  /// Receives so many bytes. Throws ConnectionLost, and what `look` throws.
  void receive(std::span<std::byte> bytes, const Look& look = {});

  /// Whether the other side has closed the connection, and nothing of it is left to receive.
  bool is_closed() const;
  /// Ends the connection: the other side, and who waits here, find it lost.
  void shut_down();

  /// The name of this machine's network that the connection goes by: "eth0". Empty if unknown.
  std::string network() const;

 private:
  int descriptor_;
};

/// Listens at an address of this machine: at one of its networks, if it is a number, and at all of
/// them, if it is a name.
class TcpListener {
 public:
  /// Port 0 is a free one. Throws Error that names the address, if it is none of this machine or
  /// something else listens there.
  explicit TcpListener(const TcpAddress& address);
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener();

  /// The port that it listens at.
  uint16_t port() const;
  /// The next connection; none if nobody connects within `patience`.
  std::optional<TcpSocket> accept(std::chrono::milliseconds patience);

 private:
  void listen_at(const sockaddr& place, unsigned length, const TcpAddress& address);

  int descriptor_ = -1;
};

}  // namespace tessera
