#include "tensor/memory_layout.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {

int64_t MemoryLayout::rounded(int64_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment, int64_t{1}) * kAlignment;
}

void MemoryLayout::insert_free(int64_t offset, int64_t size) {
  free_by_offset_.emplace(offset, size);
  free_by_size_.emplace(size, offset);
}

void MemoryLayout::erase_free(std::map<int64_t, int64_t>::iterator block) {
  auto [first, last] = free_by_size_.equal_range(block->second);
  const auto match =
      std::find_if(first, last, [&](const auto& entry) { return entry.second == block->first; });
  free_by_size_.erase(match);
  free_by_offset_.erase(block);
}

int64_t MemoryLayout::growth_offset() const {
  if (used_.empty()) return 0;
  const auto& [offset, size] = *used_.rbegin();
  return offset + size;
}

int64_t MemoryLayout::extent_after(int64_t bytes) const {
  const int64_t size = rounded(bytes);
  const bool fits_in_hole = free_by_size_.lower_bound(size) != free_by_size_.end();
  return fits_in_hole ? extent_ : std::max(extent_, growth_offset() + size);
}

int64_t MemoryLayout::allocate(int64_t bytes) {
  const int64_t size = rounded(bytes);
  int64_t offset = 0;
  if (const auto fit = free_by_size_.lower_bound(size); fit != free_by_size_.end()) {
    offset = fit->second;
    const int64_t left_over = fit->first - size;
    erase_free(free_by_offset_.find(offset));
    if (left_over > 0) insert_free(offset + size, left_over);
  } else {
    offset = growth_offset();
    extent_ = std::max(extent_, offset + size);
  }
  used_.emplace(offset, size);
  in_use_ += size;
  peak_in_use_ = std::max(peak_in_use_, in_use_);
  return offset;
}

void MemoryLayout::release(int64_t offset) {
  const auto block = used_.find(offset);
  TESSERA_CHECK(block != used_.end(), "release of offset {}, which is not in use", offset);
  int64_t size = block->second;
  in_use_ -= size;
  used_.erase(block);
  const auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      size += previous->second;
      erase_free(previous);
    }
  }
  if (const auto after = free_by_offset_.find(offset + size); after != free_by_offset_.end()) {
    size += after->second;
    erase_free(after);
  }
  if (offset < growth_offset()) insert_free(offset, size);
}

}  // namespace tessera
