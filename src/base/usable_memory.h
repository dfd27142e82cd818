#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"

namespace tessera {

// How much memory this process may use, can get now, and has used at most, as the system reports
// it. `root` is the folder that holds /proc and /sys; tests pass another folder.

/// The memory that the processes of a run may use on this machine.
struct UsableMemory {
  int64_t bytes = 0;
  std::string limited_by;  ///< the control group's file that sets the limit; else empty

  /// Returns "this machine has 23 GiB", or "this process's control group may have 2 GiB
  /// (/sys/fs/cgroup/jobs/memory.max)".
  std::string text() const;
};

/// Returns the memory of the machine, or less if a control group of this process may have less. The
/// memory that other processes use is not subtracted, because they may free it.
UsableMemory usable_memory(const fs::path& root = "/");

/// Returns the bytes that are free now or that the system can free at once: on the machine
/// (MemAvailable), or less if this process's control groups leave less. Returns the largest int64_t
/// if the system does not say.
int64_t available_memory(const fs::path& root = "/");

/// Returns the largest resident set that this process has had, in bytes, including its libraries.
/// It is exact to a few hundred pages. Throws Error if the system does not say.
int64_t peak_resident_bytes();

}  // namespace tessera
