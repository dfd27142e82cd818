#pragma once

#include <chrono>
#include <memory>

#include "comm/launch.h"
#include "comm/processes.h"

namespace tessera {

/// Joins the processes of a launch by MPI, for join_processes(). Without MPI, throws Error.
std::unique_ptr<Processes> join_by_mpi(const Launch& launch, std::chrono::milliseconds patience);

}  // namespace tessera
