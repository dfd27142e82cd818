#pragma once

#include <string>

#include "base/file.h"

namespace tessera {

/// The cores that this process may compute on at once.
struct UsableCores {
  int count = 1;
  std::string limited_by;  ///< the control group's file that sets the limit; empty if none does

  /// Returns "1 core", or "2 cores (/sys/fs/cgroup/jobs/cpu.max)".
  std::string text() const;
};

/// Returns the cores that the process was started on (taskset, cpusets, a launcher's binding), or
/// fewer if a control group gives less processor time. A part of a core counts as one: threads on
/// it use all of that time and sometimes wait. `root` is as in cores_of_control_groups().
UsableCores usable_cores(const fs::path& root = "/");

}  // namespace tessera
