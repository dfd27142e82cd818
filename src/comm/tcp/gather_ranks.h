#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/job_token.h"
#include "comm/tcp/tcp_address.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// A rank that has connected to the first rank. The first rank's own entry has a host alone.
struct GatheredRank {
  std::string host;
  TcpNonce process{};               ///< the same for both connections of one process
  std::optional<TcpSocket> member;  ///< the connection of TcpPurpose::member
  std::optional<TcpSocket> calls;   ///< the connection of TcpPurpose::calls
};

/// The limits on connections whose handshake (tcp_hello.h) has not ended. Anyone who reaches the
/// port can open them. Each takes a descriptor and less than a kilobyte.
struct HandshakeLimits {
  size_t most_connections = 256;             ///< a new connection beyond them replaces one of them
  std::chrono::milliseconds patience{5000};  ///< the time for a handshake
};

/// Listens at the address until both connections of every other rank are there. Returns all ranks
/// in rank order, and stops listening. A rank whose connection closes meanwhile may connect again.
///
/// Throws Error if the address is not one of this machine. If ranks are missing after `patience`,
/// throws Error that names them, and sends its text to the ranks that have come.
std::vector<GatheredRank> gather_ranks(const TcpAddress& address, int ranks,
                                       const std::string& own_host, std::string_view token,
                                       std::chrono::milliseconds patience,
                                       const HandshakeLimits& limits = {});

}  // namespace tessera
