#pragma once

#include <cstdint>

namespace tessera::testing {

/// What becomes of the operations on files below a folder: opening, reading, writing, flushing,
/// renaming, removing, locking, closing, making folders.
enum class Fault : int {
  none,    ///< all are as without this library
  count,   ///< they are only counted
  fail,    ///< the N-th gives an error: no space where it takes some, else one of input and output
  broken,  ///< the N-th and all that follow do
  cut,     ///< the N-th, if it reads or writes, does half of it
  kill,    ///< the process is killed at the N-th, of which a write has done its first half
  signal,  ///< the process gets SIGTERM before the N-th
  stop,    ///< the process is stopped before the N-th, as by SIGSTOP
  stop_at_removal,  ///< the same before the first that removes something
};

/// Arms it for this process. While it is armed nothing below the folder is flushed to the disk,
/// which makes a save a hundred times as fast: these faults are not power cuts. `folder` is
/// absolute and without links.
void arm_fault(Fault fault, int64_t at, const char* folder);

/// Operations since, and whether the N-th was among them.
int64_t operations_seen();

}  // namespace tessera::testing
