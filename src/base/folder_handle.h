#pragma once

#include <fcntl.h>

#include "base/descriptor.h"
#include "base/links.h"

namespace tessera {

/// An open folder, kept to find out whether it is still at its path.
class FolderHandle {
 public:
  /// Opens the folder. If it cannot be opened, the handle holds no folder, and is_at() is false.
  explicit FolderHandle(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

  bool is_open() const { return descriptor_.is_open(); }
  /// Returns whether `path` still leads to the folder. It may have been moved or replaced.
  bool is_at(const fs::path& path) const { return leads_to(path, descriptor_.get()); }

 private:
  Descriptor descriptor_;
};

}  // namespace tessera
