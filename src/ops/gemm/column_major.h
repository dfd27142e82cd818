#pragma once

#include "ops/gemm/gemm.h"

namespace tessera {

/// A matrix in the form of a library whose matrices are stored column by column.
struct ColumnMajorMatrix {
  int64_t rows = 0;  ///< as it is stored, before it is transposed
  int64_t columns = 0;
  int64_t leading = 0;  ///< elements from one column to the next
  bool transpose = false;

  bool operator==(const ColumnMajorMatrix&) const = default;
};

/// A product D = A B in the form of such a library. Memory that holds a matrix row by row holds its
/// transpose column by column, and Cᵀ = Bᵀ Aᵀ. So the library's A is the GemmShape's B, and its B
/// is the GemmShape's A.
struct ColumnMajorProduct {
  ColumnMajorMatrix a;  ///< op(a) is [n, k] of the GemmShape
  ColumnMajorMatrix b;  ///< op(b) is [k, m]
  ColumnMajorMatrix d;  ///< [n, m]

  bool operator==(const ColumnMajorProduct&) const = default;
};

/// Returns a product in the form of such a library.
ColumnMajorProduct column_major(const GemmShape& shape);

}  // namespace tessera
