#include "ops/gemm/column_major.h"

#include "ops/gemm/gemm_plan.h"

namespace tessera {
namespace {

/// Returns the description of a matrix [rows, columns] that is stored row by row, or column by
/// column if `transpose`.
ColumnMajorMatrix stored(int64_t rows, int64_t columns, int64_t leading, bool transpose) {
  return {.rows = transpose ? rows : columns,
          .columns = transpose ? columns : rows,
          .leading = leading,
          .transpose = transpose};
}

}  // namespace

ColumnMajorProduct column_major(const GemmShape& asked) {
  const GemmShape shape = with_leading(asked);
  return {.a = stored(shape.k, shape.n, shape.ldb, shape.transpose_b),
          .b = stored(shape.m, shape.k, shape.lda, shape.transpose_a),
          .d = stored(shape.m, shape.n, shape.ldc, false)};
}

}  // namespace tessera
