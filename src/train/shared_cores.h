#pragma once

#include <string>

#include "comm/rank_control.h"

namespace tessera {

/// The ranks that share their cores with this rank: all ranks that are threads of one process, or
/// the processes of a machine that their launcher has not bound to cores of their own.
struct SharedCores {
  int ranks = 1;  ///< the number of ranks that share the cores
  int index = 0;  ///< the index of this rank among them
};

/// Returns the shared cores of a rank that is a process. All ranks call it. `host` is the machine.
SharedCores find_shared_cores(const std::string& host, const RankControl& control);

}  // namespace tessera
