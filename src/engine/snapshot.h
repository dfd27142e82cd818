#pragma once

#include <memory>
#include <vector>

#include "device/accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// Pinned memory of the host that copies go through.
struct PinnedBlock {
  std::unique_ptr<DeviceMemory> memory;
  int64_t bytes = 0;
  std::unique_ptr<Event> passed;  ///< recorded after the copies
};

/// Copies of tensors on the host, as the tensors were at one point of an executor's work. They may
/// be made later than the object: see wait().
struct Snapshot {
  std::vector<Tensor> tensors;
  std::shared_ptr<PinnedBlock> block;  ///< that has the tensors; null on the processor

  /// Waits until the copies are made. Throws Error if the work before them failed.
  void wait() const {
    if (block) block->passed->synchronize();
  }
};

}  // namespace tessera
