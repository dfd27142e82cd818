#pragma once

#include <optional>
#include <string_view>

#include <sys/types.h>

#include "base/descriptor.h"
#include "base/file.h"

namespace tessera {

/// A file that grows piece by piece while others may read it. After append() the file ends with the
/// whole piece or without it, unless the machine stops meanwhile or a cut fails. A reader may see
/// the beginning of a piece that is being written. One thread at a time may call its functions.
class AppendFile {
 public:
  /// Opens `path` at its end, or creates it, durably. Throws Error if it cannot be written.
  explicit AppendFile(fs::path path);

  /// Adds one piece. If the file system refuses the piece, cuts the file back to its former length
  /// and throws Error. If the cut fails too, the message says so, and the next call repeats the cut
  /// first. Throws Error, and adds nothing, if the path no longer leads to the opened file.
  void append(std::string_view bytes);

  /// Waits until all pieces are on the disk. Throws Error if that fails.
  void sync();

 private:
  /// Cuts off what an earlier append() could not cut off.
  void cut_incomplete();

  fs::path path_;
  Descriptor descriptor_;
  std::optional<off_t> incomplete_at_;  ///< where an incomplete piece begins that is to be cut off
};

}  // namespace tessera
