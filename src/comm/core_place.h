#pragma once

#include <span>

struct hwloc_topology;

namespace tessera {

/// The parts of a machine in which a process may run: all of its cores are in them. Parts are
/// numbered from 0 on each machine. -1 stands for a process that may run on several parts, and for
/// a build without hwloc, which knows no parts.
struct CorePlace {
  int package = -1;  ///< a processor, which has a socket of its own
  int numa = -1;     ///< cores with memory of their own
  bool operator==(const CorePlace&) const = default;
};

/// Returns where this process may run, of the cores that it could use when it was started.
CorePlace core_place();

/// Returns where a process with these cores may run on a machine that hwloc describes. Only in
/// builds with hwloc.
CorePlace core_place_on(hwloc_topology* machine, std::span<const int> cores);

}  // namespace tessera
