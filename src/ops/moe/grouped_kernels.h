#pragma once

#include <cstdint>

namespace tessera {

class Stream;

// Device kernels for grouped products. A grouped product is a list of matrix products, one for each
// group. A group is the tokens of an expert: group g has the rows from offsets[g] to offsets[g +
// 1]. The offsets [groups + 1] are non-decreasing from 0, and only the device knows them. All
// pointers are to device memory.

/// An operand of the products: an array of rows that the groups share, or a matrix for each group.
/// Group g's part begins offsets[g] · row_bytes + g · group_bytes after `base`.
struct GroupedOperand {
  const void* base = nullptr;  ///< null if the product has no such operand
  int64_t row_bytes = 0;
  int64_t group_bytes = 0;
  int64_t stride = 0;  ///< elements from a row in memory to the next
};

/// The number of operands of D = A B + C. All arrays of operands are in the order A, B, C, D.
inline constexpr int kGroupedOperands = 4;

/// The arguments of write_group_table_device(), which writes what a library's kernel reads: for
/// each group the sizes, addresses and strides of its matrices, and the factors of all groups.
struct GroupTable {
  int64_t groups;
  const int32_t* offsets;  // [groups + 1]
  /// m, n and k of all groups, but for one of them, which the group's number of rows replaces: m,
  /// or k if `rows_are_k`.
  int32_t size[3];
  bool rows_are_k;
  GroupedOperand operands[kGroupedOperands];
  /// The kernel writes this and the other arrays below. m, n and k of group g are
  /// sizes[g · group_step + i · size_step] for i = 0, 1, 2. m is 0 for a group without rows, so its
  /// D stays as it is.
  int32_t* sizes;
  int64_t group_step;
  int64_t size_step;
  const void** addresses[kGroupedOperands];  // [groups] each
  int64_t* strides[kGroupedOperands];        // [groups] each
  float beta;                                // 1 if C is added, else 0
  float* factors;                            // [2]: alpha, which is 1, and beta
};

/// A or B in f32. i is the row of A or the column of B. Element (i, k) is i · step + k · step_k
/// elements after the beginning of the group's part.
struct FloatOperand {
  GroupedOperand memory;
  int64_t step;
  int64_t step_k;
};

/// D_g = A_g B_g in f32, or D_g += A_g B_g if `accumulate`. A group without rows leaves its D as it
/// is. The sums are taken in a fixed order, so the bits are the same in every run. The kernel works
/// on every device and is not tuned for speed.
struct FloatProduct {
  int64_t groups;
  int64_t rows;            // an upper bound of offsets[groups], for the launch
  const int32_t* offsets;  // [groups + 1]
  int32_t size[3];         // as in GroupTable
  bool rows_are_k;
  FloatOperand a;
  FloatOperand b;
  GroupedOperand d;
  bool accumulate;
};

/// Enqueues the kernel that writes a table.
template <typename Vendor>
void write_group_table_device(const GroupTable& table, Stream& stream);
/// Enqueues the products.
template <typename Vendor>
void float_product_device(const FloatProduct& product, Stream& stream);

}  // namespace tessera
