#pragma once

#include <memory>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/transport.h"

namespace tessera {

/// Returns a transport that moves bytes by MPI, and compares no calls (CheckedTransport does). It
/// refers to the group.
std::unique_ptr<Transport> mpi_transport(MpiGroup& group);

}  // namespace tessera
