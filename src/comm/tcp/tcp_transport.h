#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/call_connection.h"
#include "comm/tcp/other_process.h"
#include "comm/transport.h"

namespace tessera {

/// Returns the transport of this rank in the group `ranks`, over a connection to the first rank's
/// process. It refers to the connection and to the rank's process. `group` is the
/// group's number in the first rank's process.
///
/// In the first rank's process, a thread makes each call on behalf of this rank (serve_rank()),
/// among ranks that are threads. So the order, the bits and the errors of calls are those of
/// threads. All operands go through the first rank's process. That is fast enough for agreement
/// among ranks and for the loading of checkpoints; devices have links of their own.
std::unique_ptr<Transport> tcp_transport(CallConnection& connection, const OtherProcess& process,
                                         int group, std::vector<int> ranks, std::string lane);

}  // namespace tessera
