#pragma once

#include <optional>

#include "base/file_lock.h"
#include "base/log.h"
#include "checkpoint/partial_folder.h"
#include "comm/rank_control.h"

namespace tessera {

/// A lock on a run's folder for one process, because two that train in one folder would mix their
/// steps. Take it before anything is read or written there, and keep it until the run ends. A
/// process that only reads needs no lock. The lock is the operating system's, on the file run.lock:
/// it is released however the process ends. The text in the file is for people only. If the file
/// system has no locks, a warning is logged and a second process is not kept out.
class RunLock {
 public:
  /// Makes the folder if it is missing. Throws Error if another process holds the lock. The error
  /// names that process: its id, host, start time and command.
  RunLock(const fs::path& directory, const Logger& logger);
  /// Removes the file if it still is the one that was locked. Removes the folder too, if this lock
  /// made it and it is empty.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Keeps the folder however the run ends, and writes it through to the disk.
  void keep_folder() { created_.keep(); }

  /// Throws Error if the locked folder was moved or removed: another run may have begun at the
  /// path, and its files would be mixed with this run's. The error says where the folder is now,
  /// and who holds the path. Call it before each write into the folder.
  void require_held() const;

 private:
  fs::path directory_;
  fs::path path_;
  CreatedFolders created_;
  std::optional<FileLock> lock_;
};

/// Throws Error on all ranks unless they all see the folder that the first rank has made and
/// locked: the same path may be another folder on another machine. All ranks call it.
void require_shared_folder(const fs::path& directory, const RankControl& control);

}  // namespace tessera
