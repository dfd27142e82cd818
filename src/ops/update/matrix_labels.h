#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/operation.h"

namespace tessera {

// Muon's operations share these functions: labels of matrices, rules for the distributions of
// outputs, and the size of matrices. A "matrix" that an operation takes is a value [rows, columns],
// or [experts, rows, columns] with one matrix of each expert.

/// Returns the labels of the dims (program/labels.h) of all matrices, joined by `separator`, with
/// `prefix` before each. The first matrix has "r0 c0", or "e0 r0 c0" with experts.
std::string matrices_labels(std::span<const Spec> matrices, std::string_view separator,
                            std::string_view prefix = "");

/// Returns the labels of matrices that must be whole on each rank: "e0 r0! c0!".
std::string whole_matrices_labels(std::span<const Spec> matrices, std::string_view separator);

/// Returns the rule of an operation whose first `scalar_inputs` inputs are the same on all ranks
/// and whose other inputs are matrices, which must not be partial. The operation has `output_lists`
/// lists of outputs. Each list has an output for each matrix, with its distribution.
HandRule matrices_rule(std::string_view operation, size_t scalar_inputs, size_t output_lists);

/// Returns the rule of an operation on matrices of which only the experts may be split.
/// `dim_counts` has the number of dims of each input, 2 or 3. Each output has the distribution of
/// its input.
HandRule whole_matrices_rule(std::string_view operation, const std::vector<int>& dim_counts);

/// Returns the rule of a sum over at least one matrix. `matrix_rule` returns the distributions of
/// the matrices. On an axis all matrices are split, and the sum is partial; or none is split, and
/// the sum has the distribution of the first one.
HandRule sum_of_matrices_rule(std::string_view operation, const HandRule& matrix_rule);

/// The size of `count` matrices of one shape, one after the other.
struct MatrixExtent {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t columns = 0;

  /// Returns the elements of one matrix.
  int64_t elements() const { return rows * columns; }
  bool operator==(const MatrixExtent&) const = default;
};

/// Returns the extent of the matrices of a value of two or three dims.
MatrixExtent matrix_extent(const Shape& shape);

/// Returns whether a value of this shape is a matrix, or one matrix of each expert.
bool has_matrices(const Shape& shape);

}  // namespace tessera
