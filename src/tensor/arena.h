#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// The memory of one plan: a range of addresses. On the processor it is only reserved, and only the
/// pages that are touched take physical memory. On an accelerator all of it is allocated at once.
/// The plan decides the offset of each tensor. Tensors refer to the arena and do not keep it alive.
class Arena {
 public:
  /// Takes `bytes` bytes of the processor's or an accelerator's memory, which begin as zeros.
  /// Throws Error if the system refuses such a range or the accelerator has less memory free.
  explicit Arena(int64_t bytes, Accelerator* accelerator = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t bytes() const { return bytes_; }
  /// Returns the tensor that begins at byte `offset` of the arena.
  Tensor at(int64_t offset, const Shape& shape, DType dtype) const;

 private:
  int64_t bytes_;
  Accelerator* accelerator_;
  std::unique_ptr<DeviceMemory> device_memory_;
  std::byte* memory_ = nullptr;
};

}  // namespace tessera
