#pragma once

#include <optional>

#include "base/file_lock.h"
#include "base/log.h"
#include "checkpoint/partial_folder.h"

namespace tessera {

/// Holds a run's folder for one process, from before it reads or writes anything there until it
/// ends: two that train in one folder would take each other's steps. The lock is the system's, on
/// the file run.lock, and is lifted when the process dies in whatever way; what the file says, who
/// holds the run, is for people. Where the file system has no locks that is warned of, and nothing
/// keeps a second process out. Who only reads a run needs no lock.
class RunLock {
 public:
  /// Makes the folder where it is missing. Throws Error when another process holds it, saying which
  /// one: its id, its host, since when, its command.
  RunLock(const fs::path& directory, const Logger& logger);
  /// Removes the file, and the folder where it was made and holds nothing.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// The folder is kept, durably, whatever becomes of the run.
  void keep_folder() { created_.keep(); }

 private:
  fs::path path_;
  CreatedFolders created_;
  std::optional<FileLock> lock_;
};

}  // namespace tessera
