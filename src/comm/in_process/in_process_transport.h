#pragma once

#include <functional>
#include <memory>

#include "comm/in_process/meeting.h"
#include "comm/transport.h"

namespace tessera {

/// Returns the transport of the rank at a position of a meeting (meeting.h), among ranks that are
/// threads of one process. The ranks read each other's tensors, which are in the processor's
/// memory. Each rank copies or sums its own results. In an all-reduce each rank sums one slice, and
/// copies the other slices from the ranks that summed them. The destructor calls `leave`.
std::unique_ptr<Transport> in_process_transport(std::shared_ptr<Meeting> meeting, int position,
                                                std::function<void()> leave);

}  // namespace tessera
