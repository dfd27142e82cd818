#pragma once

#include <memory>
#include <vector>

#include "device/accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// Pinned memory of the host that copies use.
struct PinnedBlock {
  std::unique_ptr<DeviceMemory> memory;
  int64_t bytes = 0;
  std::unique_ptr<Event> passed;  ///< recorded after the copies
};

/// Host copies of tensors, as they were at one point of an executor's work. The copies may complete
/// after this object is made: see wait().
struct Snapshot {
  std::vector<Tensor> tensors;
  std::shared_ptr<PinnedBlock> block;  ///< the memory of the tensors; null on the processor

  /// Waits until the copies are complete. Throws Error if the work before them failed.
  void wait() const {
    if (block) block->passed->synchronize();
  }
};

}  // namespace tessera
