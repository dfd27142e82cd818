#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/tcp/tcp_address.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// A TCP listener at all system addresses that an address stands for (listening_addresses()). Each
/// has a descriptor.
class TcpListener {
 public:
  /// Begins to listen. Port 0 stands for a free one. Throws Error that names the address, if it is
  /// not one of this machine or something else listens there.
  explicit TcpListener(const TcpAddress& address);
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener();

  /// Returns the port that it listens at.
  uint16_t port() const;
  /// Returns the descriptors to poll for the next connection.
  std::span<const int> descriptors() const { return descriptors_; }
  /// Returns a connection that waits; none if there is none. Throws Error if the system has no
  /// descriptor left for it.
  std::optional<TcpSocket> accept();

 private:
  int listen_at(const SystemAddress& at);
  void close_all();

  std::vector<int> descriptors_;
};

}  // namespace tessera
