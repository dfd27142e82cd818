#pragma once

#include <string_view>

#include "base/file.h"

namespace tessera {

/// A file that grows by pieces while others may read it: each piece is there whole or not at all,
/// unless the machine itself stops in the middle of one.
class AppendFile {
 public:
  /// Opens `path` at its end, or makes it, durably. Throws Error when it cannot be written.
  explicit AppendFile(fs::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Adds one piece; throws Error, the file being as it was before, when the file system refuses
  /// it.
  void append(std::string_view bytes);

  /// Returns when all pieces are on the disk; throws Error when they cannot be brought there.
  void sync();

 private:
  fs::path path_;
  int descriptor_ = -1;
};

}  // namespace tessera
