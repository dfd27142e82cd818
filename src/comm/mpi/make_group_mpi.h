#pragma once

#include <span>
#include <string_view>

#include <mpi.h>

#include "comm/mpi/mpi_news_mpi.h"
#include "comm/processes.h"

namespace tessera {

/// Makes MPI's communicator of a group: an ordered list of ranks, one of which is this rank. All
/// members of the group call it. `comm` has all processes, and is used for nothing else.
///
/// MPI waits for ever for a member that does not come. So the members first send each other the
/// order in which they list the ranks, and wait for these messages with the timeout of `processes`.
/// Throws Error if a member lists the ranks in another order, or does not come in time.
MPI_Comm make_group(std::span<const int> ranks, std::string_view lane, const Processes& processes,
                    MpiNews& news, MPI_Comm comm);

}  // namespace tessera
