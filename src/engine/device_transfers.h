#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "device/accelerator.h"
#include "engine/snapshot.h"

namespace tessera {

/// Copies between the host and a device for which the host does not wait. They use pinned memory,
/// taken in blocks. A block is reused when the stream has passed its copies.
class DeviceTransfers {
 public:
  /// The copies run in the order of the work of `stream`. Both arguments must outlive this.
  DeviceTransfers(Accelerator& accelerator, Stream& stream)
      : accelerator_(accelerator), stream_(stream) {}

  /// Copies `from` to the device's memory. The caller may change `from` at once.
  void write(std::span<const std::byte> from, void* to);
  /// Ends a group of writes. Its pinned memory can be reused when the stream has reached this
  /// point.
  void end_writes();
  /// Copies tensors of the device as they are when the stream reaches this point.
  Snapshot read(std::span<const Tensor> tensors);

 private:
  /// Returns a block that nothing uses. If there are many blocks, it waits for the stream, so that
  /// the host does not run too far ahead.
  std::shared_ptr<PinnedBlock> take(int64_t bytes);
  std::shared_ptr<PinnedBlock> find_free(int64_t bytes);

  Accelerator& accelerator_;
  Stream& stream_;
  std::deque<std::shared_ptr<PinnedBlock>> blocks_;  // the block taken last is the last
  std::shared_ptr<PinnedBlock> writing_;             // null outside of a group of writes
  int64_t written_ = 0;                              // bytes of it
};

}  // namespace tessera
