#pragma once

#include <cstdint>

namespace tessera {

class Stream;

// Device kernels for grouped products, which are one matrix product per group (expert). Group e has
// the rows from offsets[e] to offsets[e + 1]. The offsets [groups + 1] are non-decreasing from 0,
// and only the device knows them. All pointers are to device memory.

/// An operand of the products: an array of rows that the groups share, or a matrix for each group.
/// Group e's part begins offsets[e] · row_bytes + e · group_bytes after `base`.
struct GroupedOperand {
  const void* base = nullptr;  ///< null if the product has no such operand
  int64_t row_bytes = 0;
  int64_t group_bytes = 0;
  int64_t stride = 0;  ///< elements from a row in memory to the next
};

/// The number of operands of D = A B + C, which all lists have in the order A, B, C, D.
inline constexpr int kGroupedOperands = 4;

/// The arguments of write_group_table_device(), which writes what a library's kernel reads: for
/// each group the sizes, addresses and strides of its matrices, and the factors of all groups.
struct GroupTable {
  int64_t groups;
  const int32_t* offsets;  // [groups + 1]
  /// m, n and k of a group. The number of its rows replaces m, or k if `rows_are_k`.
  int32_t size[3];
  bool rows_are_k;
  GroupedOperand operands[kGroupedOperands];
  /// m, n and k of group g: sizes[g · group_step + i · size_step] for i = 0, 1, 2. m is 0 for a
  /// group without rows, which leaves its D as it is.
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

/// D_e = A_e B_e in f32, or D_e += A_e B_e if `accumulate`. A group without rows leaves its D as it
/// is. The sums are taken in a fixed order, so the bits are the same in every run. The kernel works
/// on every device and is not tuned for speed.
struct FloatProduct {
  int64_t groups;
  int64_t rows;            // the largest number of rows of all groups together
  const int32_t* offsets;  // [groups + 1]
  int32_t size[3];         // as in GroupTable
  bool rows_are_k;
  FloatOperand a;
  FloatOperand b;
  GroupedOperand d;
  bool accumulate;
};

template <typename Vendor>
void write_group_table_device(const GroupTable& table, Stream& stream);
template <typename Vendor>
void float_product_device(const FloatProduct& product, Stream& stream);

}  // namespace tessera
