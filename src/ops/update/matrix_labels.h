#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/operation.h"

namespace tessera {

// What Muon's operations have in common: they take matrices, each of which is a value [rows,
// columns], or [experts, rows, columns] with one matrix of each expert.

/// The labels of matrix `number`: "e0 r0 c0". With `whole`, its rows and columns must be whole on
/// each rank: "e0 r0! c0!".
std::string matrix_labels(const Shape& shape, size_t number, bool whole = false);

/// The labels of several matrices, joined by `separator`, each after `before`.
std::string matrices_labels(std::span<const Spec> matrices, std::string_view separator,
                            std::string_view before = "", bool whole = false);

/// The rule of passes over matrices: their first inputs are `numbers` numbers that are the same for
/// all ranks, the others are matrices, whose sums are taken. The outputs are `copies` times as many
/// matrices, which lie as these do.
HandRule matrices_rule(std::string_view operation, size_t numbers, size_t copies);

/// The rule of operations on matrices that must be whole on a rank, of these numbers of dims: only
/// experts may be split. Each output lies as its input.
HandRule whole_matrices_rule(std::string_view operation, const std::vector<int>& dims);

/// The rule of a sum over matrices, each of which lies as `of_matrices` says: partial where ranks
/// have different matrices, or pieces. On an axis all lie so, or none.
HandRule sum_of_matrices_rule(std::string_view operation, const HandRule& of_matrices);

/// `count` matrices of one shape, one after the other.
struct MatrixExtent {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t elements() const { return rows * columns; }
  bool operator==(const MatrixExtent&) const = default;
};

/// The matrices of a value of two or three dims.
MatrixExtent matrix_extent(const Shape& shape);

/// Whether a shape is that of a matrix or of several.
bool has_matrices(const Shape& shape);

}  // namespace tessera
