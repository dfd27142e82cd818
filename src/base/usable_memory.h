#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace tessera {

/// The memory that the processes of a run may use on this machine.
struct UsableMemory {
  int64_t bytes = 0;
  std::string limited_by;  ///< the file of the control group that says so; empty for the machine

  /// "this machine has 23 GiB", or "this process's control group may have 2 GiB
  /// (/sys/fs/cgroup/jobs/memory.max)".
  std::string text() const;
};

/// Returns it: what the machine has, or less if a control group of this process may have less. What
/// other processes use of it is not known to last, so it is not taken off. `root` is as of
/// memory_of_control_groups().
UsableMemory usable_memory(const fs::path& root = "/");

/// Returns the bytes that are free now or that the system can free at once: on the machine
/// (MemAvailable), or less if this process's control groups leave less. The largest int64_t if the
/// system does not say.
int64_t available_memory(const fs::path& root = "/");

}  // namespace tessera
