#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "device/accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// A block of pinned host memory for copies to or from a device.
struct PinnedBlock {
  std::unique_ptr<DeviceMemory> memory;
  int64_t bytes = 0;
  std::unique_ptr<Event> copies_done;  ///< recorded in the stream after the block's copies
};

/// Host copies of tensors, as they were at one point of an executor's work. The copies may complete
/// after this object is made: see wait().
struct Snapshot {
  std::vector<Tensor> tensors;
  std::shared_ptr<PinnedBlock> block;  ///< the memory of the tensors; null on the processor

  /// Waits until the copies are complete. Throws Error if the work before them failed.
  void wait() const {
    if (block) block->copies_done->synchronize();
  }
};

/// Enqueues copies between the host and a device; the host does not wait for them. Each copy goes
/// through a block of pinned memory, which is reused when the stream has done the copy.
class DeviceTransfers {
 public:
  /// The copies run in the order of the work of `stream`. Both arguments must outlive the object.
  DeviceTransfers(Accelerator& accelerator, Stream& stream)
      : accelerator_(accelerator), stream_(stream) {}

  /// Copies `from` to the device's memory. The caller may change `from` at once.
  void write(std::span<const std::byte> from, void* to);
  /// Ends a group of writes. Its pinned memory is reused after the stream reached this point.
  void end_writes();
  /// Copies tensors of the device to the host, as they are when the stream reaches this point.
  Snapshot read(std::span<const Tensor> tensors);

 private:
  /// Returns a block of at least `bytes` bytes that nothing uses. If there are many blocks, it
  /// waits for the stream, so that the host does not run too far ahead.
  std::shared_ptr<PinnedBlock> take_block(int64_t bytes);
  /// Returns such a block from the list, or null if a new block must be allocated.
  std::shared_ptr<PinnedBlock> find_free_block(int64_t bytes);

  Accelerator& accelerator_;
  Stream& stream_;
  std::deque<std::shared_ptr<PinnedBlock>> blocks_;  // in the order in which they were taken
  std::shared_ptr<PinnedBlock> writing_;             // of a group of writes; null outside
  int64_t written_bytes_ = 0;                        // of writing_
};

}  // namespace tessera
