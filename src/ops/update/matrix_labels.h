#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/operation.h"

namespace tessera {

// The common part of Muon's operations. They take matrices, each of which is a value [rows,
// columns], or [experts, rows, columns] with one matrix of each expert.

/// Returns the labels of the matrices' dims (program/labels.h), joined by `separator`, each after
/// `prefix`. Those of the first are "r0 c0", or "e0 r0 c0" with experts.
std::string matrices_labels(std::span<const Spec> matrices, std::string_view separator,
                            std::string_view prefix = "");

/// Returns the labels of matrices that must be whole on each rank: "e0 r0! c0!".
std::string whole_matrices_labels(std::span<const Spec> matrices, std::string_view separator);

/// Returns the rule of passes over matrices. Their first inputs are `numbers` numbers that are the
/// same on all ranks; the others are matrices, which must not be partial. The outputs are the
/// matrices, repeated `copies` times, with the same distributions.
HandRule matrices_rule(std::string_view operation, size_t numbers, size_t copies);

/// Returns the rule of operations on matrices that must be whole on a rank, with these numbers of
/// dims: only experts may be split. Each output has the distribution of its input.
HandRule whole_matrices_rule(std::string_view operation, const std::vector<int>& dims);

/// Returns the rule of a sum over matrices with the distributions that `matrix_rule` returns:
/// partial if ranks have different matrices or pieces. On an axis all matrices are split, or none.
HandRule sum_of_matrices_rule(std::string_view operation, const HandRule& matrix_rule);

/// `count` matrices of one shape, one after the other.
struct MatrixExtent {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t elements() const { return rows * columns; }
  bool operator==(const MatrixExtent&) const = default;
};

/// Returns the matrices of a value of two or three dims.
MatrixExtent matrix_extent(const Shape& shape);

/// Returns whether a shape is that of a matrix or of several.
bool has_matrices(const Shape& shape);

}  // namespace tessera
