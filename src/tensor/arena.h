#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// The memory of one memory plan (engine/memory_plan.h), which decides the offset of each tensor.
/// On the processor the arena only reserves addresses; a page takes physical memory once it is
/// used. On an accelerator all memory is allocated at once. Tensors do not keep the arena alive.
class Arena {
 public:
  /// Takes `bytes` bytes of the processor's or an accelerator's memory, which begin as zeros.
  /// Throws Error if the system refuses the addresses or the accelerator has less memory free.
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
