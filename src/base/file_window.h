#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/read_file.h"

namespace tessera {

/// Reads small values out of a file, of which it keeps a few kilobytes around the last: one call of
/// the system serves many values that are read one after another. Used by one thread.
class FileWindow {
 public:
  /// The file outlives the window.
  explicit FileWindow(const ReadFile& file) : file_(&file) {}

  /// The value at a byte of the file. Throws Error as ReadFile::read_at does.
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
  /// Begins at `offset`, with `needed` bytes at least.
  void move_to(int64_t offset, int64_t needed);

  const ReadFile* file_;
  int64_t begin_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace tessera
