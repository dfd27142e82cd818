#pragma once

#include <cstdint>
#include <optional>

#include "ops/norm/norm.h"
#include "program/builder.h"

namespace tessera {

// A norm of rows that ranks share, in steps between which the ranks add up what they have: x is
// [tokens, columns] and may be split along its columns. norm() is faster where rows are whole.

/// Σ over its columns of each row: [tokens], in the accumulation type. Where columns are split, the
/// sums are partial.
Value row_sums(Builder& builder, Value x);

/// Σ (x - mean)² over its columns of each row: [tokens], in the accumulation type. The means are
/// `sums` / `columns`, or 0 without `sums`. `columns` is the number of them in whole rows. `sums`
/// are row_sums() of x, taken over all ranks, and have no gradient here: squares about the mean do
/// not change with it to first order.
Value row_squares(Builder& builder, Value x, std::optional<Value> sums, int64_t columns);

/// What scale_rows() takes.
struct RowStatistics {
  Value squares;              ///< row_squares(), taken over all ranks
  std::optional<Value> sums;  ///< row_sums(), taken over all ranks; none where means are not taken
  int64_t columns = 0;        ///< of whole rows
  double epsilon = 1e-5;
};

/// (x - mean) · weight / sqrt(squares / columns + epsilon), of x's shape and type. The weight is
/// [columns] in the accumulation type.
Value scale_rows(Builder& builder, Value x, std::optional<Value> weight,
                 const RowStatistics& statistics);

/// norm() of rows whose columns are split over the ranks of an axis, in even pieces, as the weight
/// is. It computes the same but for rounding: the gradient of x is rounded for each of its terms.
/// options.group must be 0. Devices cannot do it yet.
Value split_norm(Builder& builder, Value x, std::optional<Value> weight, Axis axis,
                 const NormOptions& options);

}  // namespace tessera
