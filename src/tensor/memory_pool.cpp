#include "tensor/memory_pool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process_memory.h"
#include "base/text.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace tessera {

/// The reserved addresses and their division; buffers keep it alive. Freed blocks are poisoned
/// under the address sanitizer, so that a use after release is caught.
class PoolStorage {
 public:
  explicit PoolStorage(int64_t capacity) : capacity_(capacity) {
    void* address = ::mmap(nullptr, mapped_bytes(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      throw Error(
          "cannot reserve {} of addresses: {}; raise the limit on virtual memory (ulimit -v)",
          format_bytes(static_cast<int64_t>(mapped_bytes())), std::strerror(errno));
    }
    base_ = static_cast<std::byte*>(address);
    ::madvise(base_, mapped_bytes(), MADV_HUGEPAGE);
  }
  ~PoolStorage() {
    ASAN_UNPOISON_MEMORY_REGION(base_, layout.extent());
    ::munmap(base_, mapped_bytes());
  }
  PoolStorage(const PoolStorage&) = delete;
  PoolStorage& operator=(const PoolStorage&) = delete;

  int64_t allocate(int64_t bytes) {
    if (layout.extent_after(bytes) > capacity_) {
      throw Error(
          "out of memory: {} were asked for with {} in use of a pool of {}; lower "
          "train.micro_batch or set train.recompute",
          format_bytes(bytes), format_bytes(layout.in_use()), format_bytes(capacity_));
    }
    const int64_t offset = layout.allocate(bytes);
    ASAN_UNPOISON_MEMORY_REGION(base_ + offset, static_cast<size_t>(bytes));
    return offset;
  }
  void release(int64_t offset, int64_t bytes) {
    layout.release(offset);
    ASAN_POISON_MEMORY_REGION(base_ + offset, static_cast<size_t>(MemoryLayout::rounded(bytes)));
  }
  std::byte* at(int64_t offset) const { return base_ + offset; }

  MemoryLayout layout;

 private:
  /// Whole huge pages, so that the last bytes may lie in one.
  size_t mapped_bytes() const {
    constexpr int64_t kHugePage = int64_t{1} << 21;
    return static_cast<size_t>((capacity_ + kHugePage - 1) / kHugePage * kHugePage);
  }

  int64_t capacity_;
  std::byte* base_ = nullptr;
};

Buffer::Buffer(std::shared_ptr<PoolStorage> pool, int64_t offset, int64_t bytes)
    : pool_(std::move(pool)), offset_(offset), bytes_(bytes) {}

Buffer::~Buffer() { pool_->release(offset_, bytes_); }

std::byte* Buffer::data() const { return pool_->at(offset_); }

int64_t physical_memory() { return ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE); }

MemoryPool::MemoryPool(int64_t capacity) {
  if (capacity == 0) capacity = std::min(2 * physical_memory(), available_addresses() / 2);
  storage_ = std::make_shared<PoolStorage>(capacity);
}

std::shared_ptr<Buffer> MemoryPool::allocate(int64_t bytes) {
  return std::make_shared<Buffer>(storage_, storage_->allocate(bytes), bytes);
}

int64_t MemoryPool::in_use() const { return storage_->layout.in_use(); }
int64_t MemoryPool::peak_in_use() const { return storage_->layout.peak_in_use(); }
int64_t MemoryPool::extent() const { return storage_->layout.extent(); }
void MemoryPool::reset_peak() { storage_->layout.reset_peak(); }

}  // namespace tessera
