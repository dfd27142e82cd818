#pragma once

#include <cstdint>
#include <memory>

#include "tensor/tensor.h"

namespace tessera {

/// The memory of one plan: a reserved range of addresses, of which only what is touched costs
/// anything. Where each tensor lies in it is the plan's matter. Tensors refer to the arena and do
/// not keep it alive.
class Arena {
 public:
  /// Reserves `bytes`, which begin as zeros. Throws Error when the system gives no such range.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t bytes() const { return bytes_; }
  /// The tensor that begins `offset` bytes after the arena's beginning.
  Tensor at(int64_t offset, const Shape& shape, DType dtype) const;

 private:
  int64_t bytes_;
  std::byte* memory_ = nullptr;
};

}  // namespace tessera
