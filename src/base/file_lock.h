#pragma once

#include "base/file.h"

namespace tessera {

/// The system's lock on a folder, or on a file that serves for nothing else. One open descriptor
/// holds it at a time, also within a process, and the system lifts it when the process dies in
/// whatever way. Over NFS the server keeps it for all its clients (on files; its folders have
/// none).
class FileLock {
 public:
  enum class State {
    held,
    busy,        ///< another holds it
    unsupported  ///< the file system has no locks
  };

  /// Tries to take the lock, without waiting. A file is made where it is missing. Throws Error when
  /// `path` cannot be opened.
  static FileLock on_folder(const fs::path& path);
  static FileLock on_file(const fs::path& path);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

  State state() const { return state_; }
  /// Whether what was opened stands at `path`: it may have been renamed or removed since.
  bool is_at(const fs::path& path) const;

 private:
  FileLock(const fs::path& path, int flags);

  int descriptor_ = -1;
  State state_ = State::held;
};

}  // namespace tessera
