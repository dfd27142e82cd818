#include "base/file_window.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

constexpr int64_t kWindowBytes = 4096;

}  // namespace

void FileWindow::move_to(int64_t offset, int64_t needed) {
  // Reads up to the end of the page, which the system reads anyway. If the value reaches beyond
  // that, the next page is read too.
  const int64_t to_page = kWindowBytes - offset % kWindowBytes;
  const int64_t wanted = to_page < needed ? to_page + kWindowBytes : to_page;
  const int64_t bytes = std::max(needed, std::min(wanted, file_->size() - offset));
  bytes_.clear();  // stays empty if the read throws
  std::vector<std::byte> read(static_cast<size_t>(bytes));
  file_->read_at(offset, read);
  begin_ = offset;
  bytes_ = std::move(read);
}

}  // namespace tessera
