#pragma once

#include <string>

#include "base/file.h"

namespace tessera {

/// The cores that this process may compute on at once.
struct UsableCores {
  int count = 1;
  std::string limited_by;  ///< the file of the control group that says so; empty if none does

  /// "1 core", or "2 cores (/sys/fs/cgroup/jobs/cpu.max)".
  std::string text() const;
};

/// Returns them: those that the process was started on (taskset, cpusets, a launcher's binding), or
/// less if a control group gives less processor time. A part of a core counts as one: threads on
/// it use all of the time, and wait now and then. `root` is as of cores_of_control_groups().
UsableCores usable_cores(const fs::path& root = "/");

}  // namespace tessera
