#pragma once

#include <memory>
#include <span>

#include "comm/mpi/mpi_group_mpi.h"
#include "comm/transport.h"

namespace tessera {

/// Posts a message of this rank in a group: MPI begins to move it, and matches messages in the
/// order of their posts. Its bytes move while MPI is called, by whatever thread (MpiProgress).
///
/// The destructor withdraws a message that has not moved. MPI cannot take back what it sends, so
/// the memory of such a message is kept. The group makes no more calls then.
std::unique_ptr<TransportPost> post_by_mpi(MpiGroup& group, const MarkedMessage& message,
                                           bool sent);

/// Waits until messages that post_by_mpi() has returned have moved.
void wait_for_posts(MpiGroup& group, std::span<TransportPost* const> posts);

}  // namespace tessera
