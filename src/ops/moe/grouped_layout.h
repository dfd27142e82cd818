#pragma once

#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {

/// The sizes and operands of a grouped product D = A B + C.
struct GroupedLayout {
  /// m, n and k. The number of rows of each group replaces m, or k if `rows_are_k`.
  int32_t size[3];
  bool rows_are_k;
  GroupedOperand a, b, c, d;
};

/// Returns the layout of the product that `shape` describes. For a weight gradient C is D: the
/// product is added to what D holds.
GroupedLayout grouped_layout(const GroupedShape& shape, const GroupedOperands& operands);

/// The parts of the scratch memory of a grouped product, in this order: the factors of the product
/// and of C, the sizes of the groups, the addresses and strides of A, B, C and D, and the library's
/// own memory. write_group_table_device() writes all but the last.
class GroupedAreas {
 public:
  /// The alignment of every part, in bytes.
  static constexpr int64_t kAlignment = 256;

  explicit GroupedAreas(int64_t groups);

  /// Returns the bytes of all parts (the factors take one kAlignment), and of the padding that
  /// aligns the first part.
  int64_t bytes() const {
    return 2 * kAlignment + sizes_bytes_ + 2 * kGroupedOperands * list_bytes_ + library_bytes();
  }
  /// Returns the table of a product, with its lists in `workspace`. The sizes are in the library's
  /// form: [groups, 3] for CUTLASS, [3, groups] for cuBLASLt.
  GroupTable table(GroupedLibrary library, const GroupedShape& shape,
                   const GroupedOperands& operands, std::byte* workspace) const;
  /// Returns the library's own memory within `workspace`.
  std::byte* library_memory(std::byte* workspace) const;
  /// Returns its bytes: 32 MiB, which NVIDIA recommends for cuBLASLt on Hopper. CUTLASS needs less
  /// than 1 KiB a multiprocessor.
  static int64_t library_bytes() { return int64_t{32} << 20; }

 private:
  int64_t groups_;
  int64_t sizes_bytes_;
  int64_t list_bytes_;
};

}  // namespace tessera
