#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace tessera {

/// The memory of one plan: a reserved range of addresses. Only the pages that are touched take
/// physical memory. The plan decides where each tensor lies. Tensors refer to the arena and do not
/// keep it alive.
class Arena {
 public:
  /// Reserves `bytes` bytes of a device, which begin as zeros. Throws Error if the system refuses
  /// such a range.
  explicit Arena(int64_t bytes, Device device = Device::cpu);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t bytes() const { return bytes_; }
  /// The tensor that begins at byte `offset` of the arena.
  Tensor at(int64_t offset, const Shape& shape, DType dtype) const;

 private:
  int64_t bytes_;
  Device device_;
  std::byte* memory_ = nullptr;
};

}  // namespace tessera
