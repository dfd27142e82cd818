#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/file.h"

namespace tessera {

/// A regular file open for reading at any place. Reads are calls, not a mapping, so that a bad
/// block and a file cut short meanwhile are errors that name the file, and not signals.
class ReadFile {
 public:
  ReadFile() = default;
  /// Throws Error with the path and the system's reason, and for what is not a regular file (a
  /// pipe, a device).
  explicit ReadFile(const fs::path& path);
  ~ReadFile();
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&& other) noexcept;

  /// Bytes, when the file was opened.
  int64_t size() const { return size_; }
  const fs::path& path() const { return path_; }

  /// Reads the bytes from `offset` on: all of them or an Error, also when the file ends before.
  /// May be called by many threads.
  void read_at(int64_t offset, std::span<std::byte> to) const;
  /// Asks the system to read this range ahead of its use.
  void will_need(int64_t offset, int64_t length) const;
  /// Lets the system take back the memory in which it keeps this range.
  void release(int64_t offset, int64_t length) const;

 private:
  fs::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace tessera
