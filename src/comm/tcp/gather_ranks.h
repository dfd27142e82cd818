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

/// A rank that has come to the first one. The first itself has no connections.
struct GatheredRank {
  std::string host;
  TcpNonce process{};
  std::optional<TcpSocket> member;  ///< see TcpPurpose
  std::optional<TcpSocket> calls;
};

/// The limits on connections of which the first rank does not know yet whose they are. Each
/// takes a descriptor and less than a kilobyte.
struct StrangerLimits {
  size_t most = 256;                         ///< one of them is closed for each that comes then
  std::chrono::milliseconds patience{5000};  ///< until one of them has said whose it is
};

/// Listens at the address until all ranks have come, and returns them in their order. Nobody
/// listens there any more then. Throws Error if the address is none of this machine, and one that
/// names those that have not come within `patience`, which those that have come hear too.
std::vector<GatheredRank> gather_ranks(const TcpAddress& address, int ranks,
                                       const std::string& own_host, std::string_view token,
                                       std::chrono::milliseconds patience,
                                       const StrangerLimits& limits = {});

}  // namespace tessera
