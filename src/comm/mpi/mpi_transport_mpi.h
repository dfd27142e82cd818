#pragma once

#include <memory>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/transport.h"

namespace tessera {

/// Returns a transport that moves bytes by MPI's collectives and messages. It refers to the group,
/// and to the news of its process.
std::unique_ptr<Transport> mpi_transport(MpiGroup& group, MpiNews& news);

}  // namespace tessera
