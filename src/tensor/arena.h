#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "tensor/tensor.h"

namespace tessera {

/// The memory of one plan: a range of addresses. On the processor it is only reserved, and the
/// pages that are touched take physical memory; an accelerator's is taken at once. The plan decides
/// where each tensor lies. Tensors refer to the arena and do not keep it alive.
class Arena {
 public:
  /// Takes `bytes` bytes of the processor or of an accelerator, which begin as zeros. Throws Error
  /// if the system refuses such a range, or the accelerator has not as much.
  explicit Arena(int64_t bytes, Accelerator* accelerator = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t bytes() const { return bytes_; }
  /// The tensor that begins at byte `offset` of the arena.
  Tensor at(int64_t offset, const Shape& shape, DType dtype) const;

 private:
  int64_t bytes_;
  Accelerator* accelerator_;
  std::unique_ptr<DeviceMemory> of_accelerator_;
  std::byte* memory_ = nullptr;
};

}  // namespace tessera
