#pragma once

#include <optional>

#include "base/file_lock.h"
#include "base/log.h"
#include "checkpoint/partial_folder.h"
#include "comm/rank_control.h"

namespace tessera {

/// Holds a run's folder for one process. Take it before reading or writing anything there, and keep
/// it until the process ends: two processes that train in one folder would take each other's steps.
/// The lock is the system's, on the file run.lock. It is released when the process dies in any way.
/// The text in the file names the holder and is for people only. If the file system has no locks, a
/// warning is logged and nothing keeps a second process out. A process that only reads a run needs
/// no lock.
class RunLock {
 public:
  /// Makes the folder if it is missing. Throws Error when another process holds the lock. The error
  /// names that process: its id, its host, since when, its command.
  RunLock(const fs::path& directory, const Logger& logger);
  /// Removes the file, if it is still this lock's. Removes the folder too if this lock made it and
  /// it is empty.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Keeps the folder, durably, whatever becomes of the run.
  void keep_folder() { created_.keep(); }

  /// Throws Error if the folder at the run's path is no longer the one that was locked, because it
  /// was moved or removed: another run may have begun there, and what is written by path would be
  /// among its files. The error says where the folder is now, and who holds the path. Call it
  /// before each write into the folder.
  void require_held() const;

 private:
  fs::path directory_;
  fs::path path_;
  CreatedFolders created_;
  std::optional<FileLock> lock_;
};

/// Throws Error on all ranks unless they see the folder that the first one, which holds the lock,
/// has made. A folder of one name may be another one on another machine. All ranks call it.
void require_shared_folder(const fs::path& directory, const RankControl& control);

}  // namespace tessera
