#include "engine/device_transfers.h"

#include <algorithm>
#include <bit>

#include "base/round_up.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

constexpr int64_t kMinBlockBytes = 64 << 10;  // enough for many small writes of a group
constexpr size_t kManyBlocks = 32;            // from so many on, the host waits for the stream

}  // namespace

void DeviceTransfers::write(std::span<const std::byte> from, void* to) {
  const int64_t bytes = round_up(std::ssize(from), kAlignment);
  if (writing_ && written_bytes_ + bytes > writing_->bytes) end_writes();
  if (!writing_) {
    writing_ = take_block(bytes);
    written_bytes_ = 0;
  }
  std::byte* const pinned = static_cast<std::byte*>(writing_->memory->address()) + written_bytes_;
  std::ranges::copy(from, pinned);
  stream_.copy(to, pinned, std::ssize(from));
  written_bytes_ += bytes;
}

void DeviceTransfers::end_writes() {
  if (!writing_) return;
  stream_.record(*writing_->copies_done);
  writing_ = nullptr;
}

Snapshot DeviceTransfers::read(std::span<const Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += round_up(tensor.bytes(), kAlignment);
  Snapshot snapshot;
  snapshot.block = take_block(bytes);
  auto* pinned = static_cast<std::byte*>(snapshot.block->memory->address());
  for (const Tensor& tensor : tensors) {
    stream_.copy(pinned, tensor.address(), tensor.bytes());
    snapshot.tensors.push_back(Tensor::wrap(pinned, tensor.shape(), tensor.dtype()));
    pinned += round_up(tensor.bytes(), kAlignment);
  }
  stream_.record(*snapshot.block->copies_done);
  return snapshot;
}

std::shared_ptr<PinnedBlock> DeviceTransfers::take_block(int64_t bytes) {
  std::shared_ptr<PinnedBlock> block = find_free_block(bytes);
  if (block) {
    std::erase(blocks_, block);  // it becomes the last of the list again
  } else {
    const int64_t size =
        std::max(kMinBlockBytes, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
    block = std::make_shared<PinnedBlock>();
    block->memory = accelerator_.allocate_host(size);
    block->bytes = size;
    block->copies_done = accelerator_.make_event();
  }
  blocks_.push_back(block);
  return block;
}

std::shared_ptr<PinnedBlock> DeviceTransfers::find_free_block(int64_t bytes) {
  // Only the list refers to a free block: no snapshot, no group of writes.
  const auto fits = [&](const auto& block) {
    return block.use_count() == 1 && block->bytes >= bytes;
  };
  const auto free = std::ranges::find_if(
      blocks_, [&](const auto& block) { return fits(block) && block->copies_done->reached(); });
  if (free != blocks_.end()) return *free;
  if (blocks_.size() < kManyBlocks) return nullptr;
  const auto oldest = std::ranges::find_if(blocks_, fits);
  if (oldest == blocks_.end()) return nullptr;
  (*oldest)->copies_done->synchronize();
  return *oldest;
}

}  // namespace tessera
