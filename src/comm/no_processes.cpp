#include "base/error.h"
#include "comm/launch.h"
#include "comm/processes.h"

namespace tessera {

std::unique_ptr<Processes> join_processes(std::chrono::milliseconds /*patience*/) {
  const std::optional<Launch> launch = find_launch();
  if (!launch) return nullptr;
  throw Error(
      "{} started {} processes, but this tessera was built without MPI, and each would train "
      "alone. "
      "Install libopenmpi-dev and build it anew, or give --ranks to one process",
      launch->launcher, launch->processes);
}

}  // namespace tessera
