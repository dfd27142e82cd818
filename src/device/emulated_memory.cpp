#include "device/emulated_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "base/error.h"
#include "base/round_up.h"
#include "base/text.h"

namespace tessera {
namespace {

// Sizes are rounded up to huge pages, so that the system may use such pages: fewer are quicker to
// protect.
constexpr int64_t kHugePageBytes = int64_t{1} << 21;

class EmulatedMemory final : public DeviceMemory {
 public:
  EmulatedMemory(int64_t bytes, std::shared_ptr<Fence> fence, std::shared_ptr<void> reservation)
      : reservation_(std::move(reservation)),
        bytes_(round_up(std::max<int64_t>(bytes, 1), kHugePageBytes)),
        fence_(std::move(fence)) {
    address_ = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ == MAP_FAILED) {
      throw Error("cannot reserve {} for the emulated device's memory: {}", format_bytes(bytes),
                  std::strerror(errno));
    }
#if defined(__SANITIZE_ADDRESS__)
    // So that the sanitizer finds a kernel that reads or writes past the end.
    __asan_poison_memory_region(static_cast<char*>(address_) + bytes,
                                static_cast<size_t>(bytes_ - bytes));
#endif
    if (fence_) fence_->add(address_, bytes_);
  }
  ~EmulatedMemory() override {
    if (fence_) fence_->remove(address_);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(address_, static_cast<size_t>(bytes_));
#endif
    ::munmap(address_, static_cast<size_t>(bytes_));
  }
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  void* address() const override { return address_; }

 private:
  std::shared_ptr<void> reservation_;  // kept until the memory is freed (see emulated_memory())
  int64_t bytes_;                      // mapped, at least the bytes asked for
  std::shared_ptr<Fence> fence_;
  void* address_ = nullptr;
};

}  // namespace

void Fence::add(void* address, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  blocks_.push_back({address, bytes});
  protect(blocks_.back());
}

void Fence::remove(void* address) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(blocks_, [&](const Block& block) { return block.address == address; });
}

void Fence::open() {
  const std::scoped_lock lock(mutex_);
  if (open_calls_++ == 0) protect_all();
}

void Fence::close() {
  const std::scoped_lock lock(mutex_);
  if (--open_calls_ == 0) protect_all();
}

void Fence::protect(const Block& block) const {
  const int rights = open_calls_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  TESSERA_CHECK(::mprotect(block.address, static_cast<size_t>(block.bytes), rights) == 0,
                "mprotect of {} bytes: {}", block.bytes, std::strerror(errno));
}

void Fence::protect_all() const {
  for (const Block& block : blocks_) protect(block);
}

std::unique_ptr<DeviceMemory> emulated_memory(int64_t bytes, std::shared_ptr<Fence> fence,
                                              std::shared_ptr<void> reservation) {
  return std::make_unique<EmulatedMemory>(bytes, std::move(fence), std::move(reservation));
}

}  // namespace tessera
