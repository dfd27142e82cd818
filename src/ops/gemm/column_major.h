#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// A matrix as a library describes it whose matrices are stored column by column.
struct ColumnMajorMatrix {
  int64_t rows = 0;  ///< in memory, before the matrix is transposed
  int64_t columns = 0;
  int64_t leading = 0;     ///< elements from one column to the next
  bool transpose = false;  ///< true if the product takes the transposed matrix

  bool operator==(const ColumnMajorMatrix&) const = default;
};

/// A product D = A B as such a library describes it. Memory that holds a matrix row by row holds
/// the transposed matrix column by column, and Cᵀ = Bᵀ Aᵀ. So the library's A is the GemmShape's B,
/// and the library's B is the GemmShape's A. op() transposes if `transpose` is true.
struct ColumnMajorProduct {
  ColumnMajorMatrix a;  ///< op(a) is [n, k], with m, n and k of the GemmShape
  ColumnMajorMatrix b;  ///< op(b) is [k, m]
  ColumnMajorMatrix d;  ///< [n, m]

  bool operator==(const ColumnMajorProduct&) const = default;
};

/// Returns a product as such a library describes it.
ColumnMajorProduct column_major(const GemmShape& shape);

}  // namespace tessera
