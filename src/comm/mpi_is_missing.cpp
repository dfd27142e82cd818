#include "base/error.h"
#include "comm/mpi/join_by_mpi.h"

// Replaces comm/mpi/processes_mpi.cpp in builds without MPI.

namespace tessera {

std::unique_ptr<Processes> join_by_mpi(const Launch& launch,
                                       std::chrono::milliseconds /*patience*/) {
  throw Error(
      "{} started {} processes, but this tessera was built without MPI, and each would train "
      "alone. Set {} to the first rank's machine and a port, by which they meet without it; or "
      "install libopenmpi-dev and build it anew; or give --ranks to one process",
      launch.launcher, launch.processes, kAddressVariable);
}

}  // namespace tessera
