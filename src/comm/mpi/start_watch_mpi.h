#pragma once

#include <chrono>
#include <thread>

#include "comm/launch.h"

namespace tessera {

/// While it lives, processes meet for the first time. MPI waits for ever for one that does not
/// come, and nobody can be asked yet. After `patience` each process that has come says so, and
/// ends: those that say nothing are missing. The launcher then ends the others.
class StartWatch {
 public:
  StartWatch(const Launch& launch, std::chrono::milliseconds patience);

 private:
  std::jthread thread_;
};

}  // namespace tessera
