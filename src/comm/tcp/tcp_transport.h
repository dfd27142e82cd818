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

/// The functions of an OtherProcess that the transports of its rank call.
struct TcpCaller {
  std::function<std::chrono::milliseconds()> timeout;  ///< returns the longest wait of a call
  TcpSocket::Look look;                                ///< throws Error if the first rank is silent
  /// Returns the error of a call in which the connection to the first rank was lost.
  std::function<std::string(std::string_view why)> lost_text;
  /// Returns why calls of the lane cannot be made any more; none if they can.
  std::function<std::optional<std::string>()> failure;
};

/// Returns the transport of the rank at `position` of a group, over a connection to the first
/// rank's process. It refers to the connection. `group` is the group's number there.
///
/// In the first rank's process, a thread makes each call on behalf of this rank (serve_rank()),
/// among ranks that are threads. So the order, the bits and the errors of calls are those of
/// threads. All operands go through the first rank's process. That is fast enough for agreement
/// among ranks and for the loading of checkpoints; devices have links of their own.
std::unique_ptr<Transport> tcp_transport(CallConnection& connection, int group, int position,
                                         TcpCaller caller);

}  // namespace tessera
