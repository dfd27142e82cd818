#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <mpi.h>

namespace tessera {

/// Returns whether all ranks of a communicator are on one machine. All of them call it.
bool on_one_machine(MPI_Comm comm);

/// Makes memory that the ranks of a communicator share. It has a part of this many bytes, zeros at
/// first, for each rank. All ranks call it. Returns the addresses of the parts, by position; none
/// if the machine has no memory for them (/dev/shm is full). They stay until the process ends.
std::vector<std::byte*> share_parts(MPI_Comm comm, int64_t bytes);

}  // namespace tessera
