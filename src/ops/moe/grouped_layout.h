#pragma once

#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {

/// m, n and k of every group, and the memory of the operands of D = A B + C.
struct GroupedLayout {
  int32_t size[3];  ///< as in GroupTable
  bool rows_are_k;
  GroupedOperand a, b, c, d;
};

GroupedLayout grouped_layout(const GroupedShape& shape, const GroupedOperands& operands);

/// The scratch memory of a library's product. It holds the lists that write_group_table_device()
/// writes, and the library's own memory.
class GroupedAreas {
 public:
  /// The alignment of every part, in bytes.
  static constexpr int64_t kAlignment = 256;

  explicit GroupedAreas(int64_t groups);

  /// Returns the bytes of all parts, with those that the alignment of the first part may take.
  int64_t bytes() const;
  /// Returns the table of a product in the library's form, with its lists in `workspace`: CUTLASS
  /// reads the three sizes of a group together, cuBLASLt each size of all groups.
  GroupTable table(GroupedLibrary library, const GroupedShape& shape,
                   const GroupedOperands& operands, std::byte* workspace) const;
  std::byte* library(std::byte* workspace) const;  ///< the library's own memory
  int64_t library_bytes() const;

 private:
  int64_t groups_;
  int64_t sizes_bytes_;
  int64_t list_bytes_;
};

}  // namespace tessera
