#include "base/file_window.h"

#include <algorithm>
#include <utility>

namespace tessera {

void FileWindow::move_to(int64_t offset, int64_t value_bytes) {
  // The system reads and caches whole pages, so a window up to the end of a page costs no more than
  // its first value.
  constexpr int64_t kPageBytes = 4096;
  const int64_t to_page_end = kPageBytes - offset % kPageBytes;
  const int64_t wanted = to_page_end < value_bytes ? to_page_end + kPageBytes : to_page_end;
  // At least a whole value is read, so that read_at() throws if the file ends within the value.
  const int64_t bytes = std::max(value_bytes, std::min(wanted, file_->size() - offset));
  bytes_.clear();  // if the read throws, the window is empty
  std::vector<std::byte> window(static_cast<size_t>(bytes));
  file_->read_at(offset, window);
  begin_ = offset;
  bytes_ = std::move(window);
}

}  // namespace tessera
