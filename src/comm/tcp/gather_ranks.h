#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/job_token.h"
#include "comm/tcp/tcp_listener.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// A rank that has connected to the first rank. The entry of the first rank has only a host.
struct GatheredRank {
  std::string host;
  TcpNonce process{};               ///< a number that both connections of one process give
  std::optional<TcpSocket> member;  ///< the connection of TcpPurpose::member
  std::optional<TcpSocket> calls;   ///< the connection of TcpPurpose::calls
};

/// The limits on pending connections, whose handshake (tcp_hello.h) has not ended. Anyone who
/// reaches the port can open connections. Each takes a descriptor and less than a kilobyte.
struct HandshakeLimits {
  size_t max_connections = 256;              ///< one more connection replaces a pending one
  std::chrono::milliseconds patience{5000};  ///< the time for a handshake
};

/// Takes connections until every other rank has made both of its own. Returns all ranks in rank
/// order. A rank whose connection closes meanwhile may connect again. If ranks are missing after
/// `patience`, throws Error that names them, and sends its text to the ranks that have come.
std::vector<GatheredRank> gather_ranks(const TcpListener& listener, int ranks,
                                       const std::string& own_host, std::string_view token,
                                       std::chrono::milliseconds patience,
                                       const HandshakeLimits& limits = {});

}  // namespace tessera
