#pragma once

#include <functional>
#include <memory>

#include "comm/processes.h"
#include "comm/transport.h"

namespace tessera {

/// Returns a transport that compares each call before `moves` makes it, until compare_calls(false),
/// and for good if `processes` check calls (run.check_calls). `compares` compares the calls: it is
/// a transport of the same group, such as the control plane's. It gets the fingerprint of each
/// call, the numbers of rows, and messages without bytes. Ranks whose calls differ throw its errors
/// before a byte moves, but for messages: these may have moved.
///
/// While calls are not compared, `compares` does not exist: what the first rank keeps for it, such
/// as a thread for each rank, is free. compare_calls(true) makes it again by `join`, in which the
/// ranks of the group meet.
std::unique_ptr<Transport> checked_transport(std::unique_ptr<Transport> moves,
                                             std::unique_ptr<Transport> compares,
                                             std::function<std::unique_ptr<Transport>()> join,
                                             const Processes& processes);

}  // namespace tessera
