#pragma once

#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {

/// m, n and k of every group, and where the operands of D = A B + C lie.
struct GroupedLayout {
  int32_t size[3];  ///< as in GroupTable
  bool rows_are_k;
  GroupedOperand a, b, c, d;
};

GroupedLayout grouped_layout(const GroupedShape& shape, const GroupedOperands& operands);

/// The parts of the scratch memory of a library's product: what write_group_table_device() writes,
/// and the library's own.
class GroupedAreas {
 public:
  /// Every part begins at a multiple of this.
  static constexpr int64_t kAlignment = 256;

  explicit GroupedAreas(int64_t groups);

  /// The bytes of all parts, with what it takes to align the beginning.
  int64_t bytes() const;
  /// The table of a product in the library's form, its lists within `workspace`: CUTLASS reads the
  /// three sizes of a group together, cuBLASLt each size of all groups.
  GroupTable table(GroupedLibrary library, const GroupedShape& shape,
                   const GroupedOperands& operands, std::byte* workspace) const;
  std::byte* library(std::byte* workspace) const;
  int64_t library_bytes() const;

 private:
  int64_t groups_;
  int64_t sizes_bytes_;
  int64_t list_bytes_;
};

}  // namespace tessera
