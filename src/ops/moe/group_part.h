#pragma once

#include <cstddef>

#include "device/kernel.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {
namespace {

/// Where group `group`, whose first row is `row`, has its part of an operand. Null if there is
/// none.
__device__ inline const void* part_of_group(const GroupedOperand& operand, int64_t row,
                                            int64_t group) {
  if (operand.base == nullptr) return nullptr;
  return static_cast<const std::byte*>(operand.base) + row * operand.row_bytes +
         group * operand.group_bytes;
}

}  // namespace
}  // namespace tessera
