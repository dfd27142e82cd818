#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/tcp/tcp_address.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// A TCP listener at all IP addresses that an address stands for (listening_addresses()). It has a
/// descriptor for each of them.
class TcpListener {
 public:
  /// Begins to listen. Port 0 lets the system choose a port that is free at all addresses. Throws
  /// Error that names the address if it is not one of this machine, or if something else listens
  /// there.
  explicit TcpListener(const TcpAddress& address);
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener();

  uint16_t port() const;
  /// Returns the descriptors to poll for the next connection.
  std::span<const int> descriptors() const { return descriptors_; }
  /// Returns the next connection that waits to be accepted; none if none waits. Throws Error if the
  /// system has no descriptor left for it.
  std::optional<TcpSocket> accept() const;

 private:
  int listen_at_all(const TcpAddress& address);
  int listen_at(SystemAddress address);
  void close_all();

  std::vector<int> descriptors_;
};

}  // namespace tessera
