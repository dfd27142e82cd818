#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/tcp/call_connection.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/transport.h"

namespace tessera {

/// What the calls of a rank ask of the process that they are made in.
struct TcpCaller {
  std::function<std::chrono::milliseconds()> timeout;  ///< how long a call waits for other ranks
  TcpSocket::Look look;                                ///< throws Error if the first rank is silent
  std::function<std::string(std::string_view why)> lost;  ///< what is said if it is lost
  /// Why calls of the lane cannot be made any more.
  std::function<std::optional<std::string>()> failure;
};

/// The transport of the rank at `position` of a group that meets the others in the first rank's
/// process, by a connection to it, which it refers to, where the group has a number. That process
/// has a transport for this rank too, among ranks that are threads, and makes each call there (see
/// ServedGroup). So calls, their order, their bits and their errors are those of threads. All
/// operands go through the first rank: it is for what ranks agree about, and for loads of
/// checkpoints, while devices have links of their own.
std::unique_ptr<Transport> tcp_transport(CallConnection& connection, int group, int position,
                                         TcpCaller caller);

}  // namespace tessera
