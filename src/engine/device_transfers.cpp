#include "engine/device_transfers.h"

#include <algorithm>
#include <bit>

#include "base/round_up.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

constexpr int64_t kMinBlockBytes = 64 << 10;  // enough for many small writes of a group
constexpr size_t kManyBlocks = 32;            // with so many, the host waits for the stream

}  // namespace

void DeviceTransfers::write(std::span<const std::byte> from, void* to) {
  const int64_t bytes = round_up(std::ssize(from), kAlignment);
  if (writing_ && written_bytes_ + bytes > writing_->bytes) end_writes();
  if (!writing_) {
    writing_ = take(bytes);
    written_bytes_ = 0;
  }
  std::byte* const pinned = static_cast<std::byte*>(writing_->memory->address()) + written_bytes_;
  std::ranges::copy(from, pinned);
  stream_.copy(to, pinned, std::ssize(from));
  written_bytes_ += bytes;
}

void DeviceTransfers::end_writes() {
  if (!writing_) return;
  stream_.record(*writing_->passed);
  writing_ = nullptr;
}

Snapshot DeviceTransfers::read(std::span<const Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += round_up(tensor.bytes(), kAlignment);
  Snapshot snapshot;
  snapshot.block = take(bytes);
  auto* pinned = static_cast<std::byte*>(snapshot.block->memory->address());
  for (const Tensor& tensor : tensors) {
    stream_.copy(pinned, tensor.address(), tensor.bytes());
    snapshot.tensors.push_back(Tensor::wrap(pinned, tensor.shape(), tensor.dtype()));
    pinned += round_up(tensor.bytes(), kAlignment);
  }
  stream_.record(*snapshot.block->passed);
  return snapshot;
}

std::shared_ptr<PinnedBlock> DeviceTransfers::take(int64_t bytes) {
  std::shared_ptr<PinnedBlock> block = find_free(bytes);
  if (block) {
    std::erase(blocks_, block);  // it becomes the last of the list again
  } else {
    const int64_t size =
        std::max(kMinBlockBytes, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
    block = std::make_shared<PinnedBlock>();
    block->memory = accelerator_.allocate_host(size);
    block->bytes = size;
    block->passed = accelerator_.make_event();
  }
  blocks_.push_back(block);
  return block;
}

std::shared_ptr<PinnedBlock> DeviceTransfers::find_free(int64_t bytes) {
  // Only the list refers to a free block: no snapshot, no group of writes.
  const auto fits = [&](const auto& block) {
    return block.use_count() == 1 && block->bytes >= bytes;
  };
  const auto passed = std::ranges::find_if(
      blocks_, [&](const auto& block) { return fits(block) && block->passed->reached(); });
  if (passed != blocks_.end()) return *passed;
  if (blocks_.size() < kManyBlocks) return nullptr;
  const auto oldest = std::ranges::find_if(blocks_, fits);
  if (oldest == blocks_.end()) return nullptr;
  (*oldest)->passed->synchronize();
  return *oldest;
}

}  // namespace tessera
