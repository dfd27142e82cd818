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

/// Returns the layout of a shape's product. For a weight gradient C is D, to which it is added.
GroupedLayout grouped_layout(const GroupedShape& shape, const GroupedOperands& operands);

/// The division of the scratch memory of a library's product: the factors and the lists that
/// write_group_table_device() writes, then the library's own memory.
class GroupedAreas {
 public:
  /// The alignment of every part, in bytes.
  static constexpr int64_t kAlignment = 256;

  explicit GroupedAreas(int64_t groups);

  /// Returns the bytes of all parts, and of the padding that aligns the first part.
  int64_t bytes() const {
    return 2 * kAlignment + sizes_bytes_ + 2 * kGroupedOperands * list_bytes_ + library_bytes();
  }
  /// Returns the table of a product, with its lists in `workspace`. The sizes are in the library's
  /// form: [groups, 3] for CUTLASS, [3, groups] for cuBLASLt.
  GroupTable table(GroupedLibrary library, const GroupedShape& shape,
                   const GroupedOperands& operands, std::byte* workspace) const;
  std::byte* library_memory(std::byte* workspace) const;  ///< the library's own memory
  /// Returns the bytes of the library's own memory, as many as NVIDIA recommends for cuBLASLt on
  /// Hopper. CUTLASS needs far less: for each multiprocessor 128 bytes for each of A, B and C, and
  /// 256 for D.
  static int64_t library_bytes() { return int64_t{32} << 20; }

 private:
  int64_t groups_;
  int64_t sizes_bytes_;
  int64_t list_bytes_;
};

}  // namespace tessera
