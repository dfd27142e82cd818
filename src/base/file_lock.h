#pragma once

#include <optional>

#include "base/descriptor.h"
#include "base/links.h"

namespace tessera {

/// The system's lock on a folder, or on a file that exists only to be locked. One open descriptor
/// holds it at a time, even within one process. The system releases it when the process ends in any
/// way. Over NFS the server keeps locks on files for all its clients; folders have no locks there.
class FileLock {
 public:
  enum class State {
    held,
    busy,        ///< another descriptor holds it
    unsupported  ///< the file system has no locks
  };

  /// Tries to take the lock without waiting. on_file() creates the file if it is missing. Throws
  /// Error if `path` cannot be opened.
  static FileLock on_folder(const fs::path& path);
  static FileLock on_file(const fs::path& path);

  State state() const { return state_; }
  /// Returns whether `path` still leads to what was opened. It may have been renamed or removed.
  bool is_at(const fs::path& path) const { return leads_to(path, descriptor_.get()); }
  /// Returns the present path of what was opened; none if it was removed or the system does not
  /// say.
  std::optional<fs::path> present_path() const;

 private:
  FileLock(const fs::path& path, int flags);

  Descriptor descriptor_;
  State state_ = State::held;
};

}  // namespace tessera
