#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// A matrix as a library takes it whose matrices are stored column by column.
struct ColumnMajorMatrix {
  int64_t rows = 0;  ///< as it is stored, before it is transposed
  int64_t columns = 0;
  int64_t leading = 0;  ///< elements from a column to the next
  bool transpose = false;

  bool operator==(const ColumnMajorMatrix&) const = default;
};

/// A product D = A B as such a library takes it. Memory that holds a matrix row by row holds the
/// transposed one column by column, and Cᵀ = Bᵀ Aᵀ: the library's A is our B, and its B our A.
struct ColumnMajorProduct {
  ColumnMajorMatrix a;  ///< op(a) is [n, k] of the GemmShape
  ColumnMajorMatrix b;  ///< op(b) is [k, m]
  ColumnMajorMatrix d;  ///< [n, m]

  bool operator==(const ColumnMajorProduct&) const = default;
};

ColumnMajorProduct column_major(const GemmShape& shape);

}  // namespace tessera
