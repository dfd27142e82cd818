#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "device/accelerator.h"
#include "engine/snapshot.h"

namespace tessera {

/// Copies between the host and a device that the host does not wait for. They go through pinned
/// memory, which is taken in blocks and used again when a stream has come past it.
class DeviceTransfers {
 public:
  /// The copies take their places in the work of `stream`. Both must outlive this.
  DeviceTransfers(Accelerator& accelerator, Stream& stream)
      : accelerator_(accelerator), stream_(stream) {}

  /// Copies `from` to the device's memory. The caller may change `from` at once.
  void write(std::span<const std::byte> from, void* to);
  /// Ends a group of writes. Its pinned memory is used again when the stream has come to here.
  void end_writes();
  /// Copies tensors of the device as they are when the stream has come to here.
  Snapshot read(std::span<const Tensor> tensors);

 private:
  /// Returns a block that nothing uses. It waits for the stream if there are many blocks: the host
  /// is then far enough ahead.
  std::shared_ptr<PinnedBlock> take(int64_t bytes);
  std::shared_ptr<PinnedBlock> find_free(int64_t bytes);

  Accelerator& accelerator_;
  Stream& stream_;
  std::deque<std::shared_ptr<PinnedBlock>> blocks_;  // the one that was taken last is the last
  std::shared_ptr<PinnedBlock> writing_;             // null outside of a group of writes
  int64_t written_ = 0;                              // bytes of it
};

}  // namespace tessera
