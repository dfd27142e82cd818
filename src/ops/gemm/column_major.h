#pragma once

#include "ops/gemm/gemm_plan.h"

namespace tessera {

/// A matrix in the terms of a library that stores matrices column by column, such as cuBLASLt.
struct ColumnMajorMatrix {
  int64_t rows = 0;  ///< in memory, before the matrix is transposed
  int64_t columns = 0;
  int64_t leading = 0;     ///< elements from one column to the next
  bool transpose = false;  ///< true if the product takes the transposed matrix

  bool operator==(const ColumnMajorMatrix&) const = default;
};

/// The product D = op(A) op(B) in such a library's terms, where op(x) is x, or xᵀ if x.transpose. A
/// matrix that is stored row by row is, read column by column, its transpose, and Cᵀ = Bᵀ Aᵀ. So
/// the library's A is the GemmShape's B, and the library's B is the GemmShape's A.
struct ColumnMajorProduct {
  ColumnMajorMatrix a;  ///< op(a) is [n, k], with m, n and k of the GemmShape
  ColumnMajorMatrix b;  ///< op(b) is [k, m]
  ColumnMajorMatrix d;  ///< [n, m]

  bool operator==(const ColumnMajorProduct&) const = default;
};

/// Returns a row-major product in the terms of a column-major library.
inline ColumnMajorProduct column_major(const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);
  const auto stored = [](int64_t rows, int64_t columns, int64_t leading, bool by_column) {
    return ColumnMajorMatrix{by_column ? rows : columns, by_column ? columns : rows, leading,
                             by_column};
  };
  return {.a = stored(shape.k, shape.n, shape.ldb, shape.transpose_b),
          .b = stored(shape.m, shape.k, shape.lda, shape.transpose_a),
          .d = stored(shape.m, shape.n, shape.ldc, false)};
}

}  // namespace tessera
