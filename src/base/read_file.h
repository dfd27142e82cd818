#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/descriptor.h"
#include "base/file.h"

namespace tessera {

/// A regular file, open for reading at any offset. It is read by system calls, not mapped: a bad
/// block, or a file that is cut short meanwhile, is then an Error that names the file, no signal.
class ReadFile {
 public:
  ReadFile() = default;
  /// Opens the file. Throws Error with the path and the reason, also if it is not a regular file (a
  /// pipe, a device).
  explicit ReadFile(const fs::path& path);

  /// Returns the size in bytes at the time when the file was opened.
  int64_t size() const { return size_; }
  const fs::path& path() const { return path_; }

  /// Fills `to` with the bytes from `offset` on. Throws Error if it cannot read all of them, also
  /// if the file ends earlier. Many threads may call it at once.
  void read_at(int64_t offset, std::span<std::byte> to) const;
  /// Asks the system to read this range ahead of its use.
  void will_need(int64_t offset, int64_t length) const;
  /// Lets the system free the memory in which it caches this range.
  void release(int64_t offset, int64_t length) const;

 private:
  fs::path path_;
  Descriptor descriptor_;
  int64_t size_ = 0;
};

}  // namespace tessera
