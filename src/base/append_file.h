#pragma once

#include <optional>
#include <string_view>

#include <sys/types.h>

#include "base/file.h"

namespace tessera {

/// A file that grows piece by piece while others may read it. Each piece is in the file whole or
/// not at all, unless the machine itself stops while a piece is written.
class AppendFile {
 public:
  /// Opens `path` at its end, or creates it, durably. Throws Error if it cannot be written.
  explicit AppendFile(fs::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Adds one piece. If the file system refuses it, cuts the file back to what it was before and
  /// throws Error. If the cut fails too, the message says so, and the next call first tries it
  /// again. Throws Error, and adds nothing, if the path no longer leads to the opened file.
  void append(std::string_view bytes);

  /// Returns once all pieces are on the disk. Throws Error if they cannot be brought there.
  void sync();

 private:
  void cut_incomplete();

  fs::path path_;
  int descriptor_ = -1;
  std::optional<off_t> incomplete_at_;  ///< the offset of a piece that could not be cut off
};

}  // namespace tessera
