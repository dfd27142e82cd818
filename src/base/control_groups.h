#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"

namespace tessera {

/// A limit that a control group sets.
template <typename Number>
struct GroupLimit {
  Number value = 0;
  std::string file;  ///< the file that says so
};

// The functions below read the limits of this process's control groups, of version 1, version 2 or
// both. A limit of a group holds for all groups below it. The functions therefore return the lowest
// limit of the process's own group and of all its parent groups that are visible here, or nothing
// if no limit is set. A file that is missing, cannot be read or holds no number sets no limit: the
// system decides which files there are. `root` holds /proc and /sys; tests pass another folder.

/// Returns the bytes of memory that all processes of a group together may have: memory.max and
/// memory.high of version 2, memory.limit_in_bytes and hierarchical_memory_limit of version 1.
/// Beyond memory.high the system slows the processes down until they hardly make progress. Beyond
/// the other limits it kills a process of the group.
std::optional<GroupLimit<int64_t>> memory_of_control_groups(const fs::path& root = "/");

/// Returns the bytes that these limits leave now: the least, over the groups, of the limit minus
/// the memory in use. Files that the system caches, and can drop at once, do not count as used.
std::optional<int64_t> free_memory_of_control_groups(const fs::path& root = "/");

/// Returns the processor time that the processes of a group together may have, in seconds per
/// second: cpu.max of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of version 1.
std::optional<GroupLimit<double>> cores_of_control_groups(const fs::path& root = "/");

}  // namespace tessera
