#pragma once

#include <memory>

#include "comm/in_process/meeting.h"
#include "comm/transport.h"

namespace tessera {

/// The transport of the rank at a position of a meeting, among ranks that are threads of one
/// process. The ranks read each other's tensors, which lie on the processor. Each rank copies or
/// sums what it gets itself; of an all-reduce, each sums a slice, which the others copy.
std::unique_ptr<Transport> in_process_transport(std::shared_ptr<Meeting> meeting, int position);

}  // namespace tessera
