#pragma once

#include <cstddef>

#include "device/kernel.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {
namespace {

/// Returns the address of a group's part of an operand, or null. `first_row` is offsets[group].
__device__ inline const void* part_of_group(const GroupedOperand& operand, int64_t first_row,
                                            int64_t group) {
  if (operand.base == nullptr) return nullptr;
  return static_cast<const std::byte*>(operand.base) + first_row * operand.row_bytes +
         group * operand.group_bytes;
}

}  // namespace
}  // namespace tessera
