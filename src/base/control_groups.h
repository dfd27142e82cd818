#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"

namespace tessera {

/// A limit that a control group sets, and the file that says so.
template <typename Number>
struct GroupLimit {
  Number value = 0;
  std::string file;
};

// The limits of this process's control groups, of version 1, version 2 or both: the lowest of its
// own group and of all groups around it that are visible here. Null if none is set. A file that is
// missing, cannot be read or says no number limits nothing, because the system decides which files
// there are. `root` is the folder in which /proc and /sys are, another one in tests.

/// Returns the bytes of memory that all processes of a group together may have: memory.max and
/// memory.high of version 2, memory.limit_in_bytes and hierarchical_memory_limit of version 1.
/// Beyond memory.high the system slows the processes down until they hardly go on, beyond the
/// others it kills one of them.
std::optional<GroupLimit<int64_t>> memory_of_control_groups(const fs::path& root = "/");

/// Returns the bytes that these limits leave now: each less what the processes of its group have,
/// but for files that the system keeps in memory only while nobody needs it.
std::optional<int64_t> free_memory_of_control_groups(const fs::path& root = "/");

/// Returns the processor time that they may have, in seconds a second: cpu.max of version 2,
/// cpu.cfs_quota_us and cpu.cfs_period_us of version 1.
std::optional<GroupLimit<double>> cores_of_control_groups(const fs::path& root = "/");

}  // namespace tessera
