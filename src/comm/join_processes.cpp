#include "base/error.h"
#include "comm/launch.h"
#include "comm/mpi/join_by_mpi.h"
#include "comm/processes.h"
#include "comm/tcp/join_by_tcp.h"

namespace tessera {

std::unique_ptr<Processes> join_processes(std::chrono::milliseconds patience) {
  const std::optional<Launch> launch = find_launch();
  if (!launch) return nullptr;
  return launch->address ? join_by_tcp(*launch, patience) : join_by_mpi(*launch, patience);
}

}  // namespace tessera
