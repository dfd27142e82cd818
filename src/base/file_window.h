#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/read_file.h"

namespace tessera {

/// A reader of small values in a file. Each system call reads a window: the bytes up to the next
/// multiple of 4 KiB in the file, or up to the file's end. Values that are read one after another
/// then mostly come from the same window. Only one thread may use a FileWindow.
class FileWindow {
 public:
  /// `file` must outlive the window.
  explicit FileWindow(const ReadFile& file) : file_(&file) {}

  /// Returns the value at byte `offset` of the file. Throws Error if ReadFile::read_at() does.
  template <typename Value>
  Value load(int64_t offset) {
    Value value{};
    const int64_t end = begin_ + static_cast<int64_t>(bytes_.size());
    if (offset < begin_ || offset + static_cast<int64_t>(sizeof(Value)) > end) {
      move_to(offset, sizeof(Value));
    }
    std::memcpy(&value, bytes_.data() + (offset - begin_), sizeof(Value));
    return value;
  }

 private:
  /// Reads the window that begins at `offset` and has at least `value_bytes` bytes.
  void move_to(int64_t offset, int64_t value_bytes);

  const ReadFile* file_;
  int64_t begin_ = 0;             // the window's offset in the file
  std::vector<std::byte> bytes_;  // the window
};

}  // namespace tessera
