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

/// The functions by which the calls of a rank ask its process, an OtherProcess.
struct TcpCaller {
  std::function<std::chrono::milliseconds()> timeout;  ///< returns the most that a call waits
  TcpSocket::Look look;                                ///< throws Error if the first rank is silent
  /// Returns the text of the error after the connection to the first rank is lost.
  std::function<std::string(std::string_view why)> lost;
  /// Returns why calls of the lane cannot be made any more; none if they can.
  std::function<std::optional<std::string>()> failure;
};

/// Returns the transport of the rank at `position` of a group, over a connection to the first
/// rank's process. It refers to the connection. `group` is the group's number there.
///
/// In that process, a thread stands for this rank among ranks that are threads, and makes each call
/// (see serve_rank()). So calls, their order, their bits and their errors are those of threads. All
/// operands go through the first rank. That is fast enough for agreement among ranks and for the
/// loading of checkpoints; devices have links of their own.
std::unique_ptr<Transport> tcp_transport(CallConnection& connection, int group, int position,
                                         TcpCaller caller);

}  // namespace tessera
