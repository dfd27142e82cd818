#include "tensor/arena.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "base/error.h"
#include "base/text.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Returns `bytes` rounded up to whole huge pages, so that a huge page can hold the last bytes too.
size_t mapped_bytes(int64_t bytes) {
  return static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), kHugePage));
}

}  // namespace

Arena::Arena(int64_t bytes, Accelerator* accelerator) : bytes_(bytes), accelerator_(accelerator) {
  if (accelerator_ != nullptr) {
    device_memory_ = accelerator_->allocate(bytes);
    memory_ = static_cast<std::byte*>(device_memory_->address());
    return;
  }
  void* address = ::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error("cannot reserve {} of addresses: {}; raise the limit on virtual memory (ulimit -v)",
                format_bytes(bytes), std::strerror(errno));
  }
  memory_ = static_cast<std::byte*>(address);
  // A hint: fewer, larger pages make fewer misses when addresses are translated.
  ::madvise(memory_, mapped_bytes(bytes), MADV_HUGEPAGE);
}

Arena::~Arena() {
  if (accelerator_ == nullptr) ::munmap(memory_, mapped_bytes(bytes_));
}

Tensor Arena::at(int64_t offset, const Shape& shape, DType dtype) const {
  const int64_t size = shape.elements() * dtype_size(dtype);
  TESSERA_CHECK(offset >= 0 && offset + size <= bytes_, "{} bytes at {} of an arena of {}", size,
                offset, bytes_);
  return Tensor::wrap(memory_ + offset, shape, dtype, accelerator_);
}

}  // namespace tessera
