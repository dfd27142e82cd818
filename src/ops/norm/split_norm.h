#pragma once

#include <cstdint>
#include <optional>

#include "ops/norm/norm.h"
#include "program/builder.h"

namespace tessera {

// These operations compute a norm of rows whose columns are split over ranks, in three steps:
// row_sums(), row_squares() and scale_rows(). Between the steps the ranks sum their results. x is
// [tokens, columns]. norm() is faster if rows are whole.

/// Returns Σ x over the columns of each row: [tokens], in the accumulation type. If columns are
/// split, the sums are partial.
Value row_sums(Builder& builder, Value x);

/// Returns Σ (x - mean)² over the columns of each row: [tokens], in the accumulation type. The
/// means are `sums` / `columns`, or 0 without `sums`. `columns` is the number of columns of whole
/// rows. `sums` are row_sums() of x, summed over all ranks. They get no gradient here: to first
/// order, the squares do not depend on the mean.
Value row_squares(Builder& builder, Value x, std::optional<Value> sums, int64_t columns);

/// The statistics of rows that scale_rows() takes.
struct RowStatistics {
  Value squares;              ///< row_squares(), summed over all ranks
  std::optional<Value> sums;  ///< row_sums(), summed over all ranks; none for a mean of 0
  int64_t columns = 0;        ///< of whole rows
  double epsilon = 1e-5;
};

/// Returns (x - mean) · weight / sqrt(squares / columns + epsilon), of x's shape and type. The
/// weight is [columns] in the accumulation type.
Value scale_rows(Builder& builder, Value x, std::optional<Value> weight,
                 const RowStatistics& statistics);

/// Returns the output of norm() for rows whose columns are split over the ranks of an axis, in even
/// pieces. The weight is split in the same way. The results differ from norm()'s only by rounding:
/// each term of x's gradient is rounded. options.group must be 0. Devices cannot run this yet.
Value split_norm(Builder& builder, Value x, std::optional<Value> weight, Axis axis,
                 const NormOptions& options);

}  // namespace tessera
