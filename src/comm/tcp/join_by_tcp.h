#pragma once

#include <chrono>
#include <memory>

#include "comm/launch.h"
#include "comm/processes.h"

namespace tessera {

/// Joins the processes of a launch that has an address. The first rank listens there, and the
/// others connect to it. See join_processes().
std::unique_ptr<Processes> join_by_tcp(const Launch& launch, std::chrono::milliseconds patience);

}  // namespace tessera
