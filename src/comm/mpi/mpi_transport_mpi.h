#pragma once

#include <memory>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/transport.h"

namespace tessera {

/// Moves bytes by MPI's collectives and messages. Refers to the group.
std::unique_ptr<Transport> mpi_transport(MpiGroup& group);

}  // namespace tessera
