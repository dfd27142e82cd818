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

/// A rank that has connected to the first one. The entry of the first rank has no connections.
struct GatheredRank {
  std::string host;
  TcpNonce process{};
  std::optional<TcpSocket> member;  ///< see TcpPurpose
  std::optional<TcpSocket> calls;
};

/// The limits on connections that have not said yet which rank they are of. Each takes a descriptor
/// and less than a kilobyte.
struct StrangerLimits {
  size_t most = 256;                         ///< if there are as many, a new one closes one of them
  std::chrono::milliseconds patience{5000};  ///< the time to say which rank it is of
};

/// Listens at the address until all ranks have connected, and returns them in rank order. Then
/// nothing listens there any more. Throws Error if the address is not one of this machine. If ranks
/// are missing after `patience`, throws Error that names them, which is sent to those that have
/// come.
std::vector<GatheredRank> gather_ranks(const TcpAddress& address, int ranks,
                                       const std::string& own_host, std::string_view token,
                                       std::chrono::milliseconds patience,
                                       const StrangerLimits& limits = {});

}  // namespace tessera
