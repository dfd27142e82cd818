#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/rank_pieces.h"

namespace tessera::testing {

// Which elements of a whole a rank has, by asking of each element who has it: an oracle that shares
// nothing with the layouts of pieces that collectives use.

/// The position, of `count`, that has an element of `extent`.
inline int owner(int64_t element, int64_t extent, int count, const TypeOnAxis& type) {
  if (count == 1) return 0;
  switch (type.placement == Placement::varying ? PieceKind::even : type.pieces.kind) {
    case PieceKind::uneven: {
      int position = 0;
      int64_t end = type.pieces.sizes[0];
      while (element >= end) end += type.pieces.sizes[static_cast<size_t>(++position)];
      return position;
    }
    case PieceKind::zigzag: {
      const auto chunk = static_cast<int>(element / (extent / (2 * count)));
      return std::min(chunk, 2 * count - 1 - chunk);
    }
    default:
      return static_cast<int>(element / (extent / count));
  }
}

/// The elements of a dim that a rank has.
inline std::vector<int64_t> owned(const Mesh& mesh, const Distribution& distribution, int dim,
                                  int64_t extent, int rank) {
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < extent; ++i) elements.push_back(i);
  for (const Axis axis : distribution.order(dim)) {
    const TypeOnAxis& type = distribution.on(axis);
    const int64_t inner = std::ssize(elements) / type.repeats;
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < std::ssize(elements); ++i) {
      if (owner(i % inner, inner, mesh.size(axis), type) == mesh.coordinate(rank, axis)) {
        kept.push_back(elements[static_cast<size_t>(i)]);
      }
    }
    elements = kept;
  }
  return elements;
}

/// A logical matrix that lies over ranks: what each of them has of it.
class PlainMatrix {
 public:
  PlainMatrix(const Mesh& mesh, Distribution distribution, const Shape& whole)
      : mesh_(mesh), distribution_(std::move(distribution)), whole_(whole) {}

  std::vector<int64_t> rows(int rank) const {
    return owned(mesh_, distribution_, 0, whole_[0], rank);
  }
  std::vector<int64_t> columns(int rank) const {
    return owned(mesh_, distribution_, 1, whole_[1], rank);
  }
  Shape shape(int rank) const { return {std::ssize(rows(rank)), std::ssize(columns(rank))}; }

  /// What a rank has of a matrix of these numbers: where it is partial an addend. That of the first
  /// rank makes the sum right.
  std::vector<double> part(const std::vector<double>& numbers, int rank) const {
    const int addends = addend_count(mesh_, distribution_);
    const int own = position_among(mesh_, distribution_, rank, Placement::partial);
    std::vector<std::vector<double>> others;
    for (int i = 1; i < addends; ++i) {
      others.push_back(small_numbers(whole_.elements(), fmt::format("plain {}", i)));
    }
    std::vector<double> result;
    for (const int64_t row : rows(rank)) {
      for (const int64_t column : columns(rank)) {
        const auto at = static_cast<size_t>(row * whole_[1] + column);
        double number = own == 0 ? numbers[at] : others[static_cast<size_t>(own) - 1][at];
        for (const std::vector<double>& other : others) number -= own == 0 ? other[at] : 0;
        result.push_back(number);
      }
    }
    return result;
  }

  /// The matrix as each rank of the first place sees it: its elements, or sums of addends. Ranks
  /// that must have the same are compared with the first of them.
  std::vector<double> whole(const std::vector<std::vector<double>>& parts,
                            const std::string& what) const {
    std::vector<std::vector<double>> copies(static_cast<size_t>(mesh_.ranks()));
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      const auto copy = static_cast<size_t>(
          position_among(mesh_, distribution_, rank, Placement::invariant) * 1000 +
          position_among(mesh_, distribution_, rank, Placement::replicated));
      if (copies.size() <= copy) copies.resize(copy + 1);
      copies[copy].resize(static_cast<size_t>(whole_.elements()));
      const std::vector<double>& part = parts[static_cast<size_t>(rank)];
      EXPECT_EQ(std::ssize(part), shape(rank).elements()) << what;
      size_t i = 0;
      for (const int64_t row : rows(rank)) {
        for (const int64_t column : columns(rank)) {
          copies[copy][static_cast<size_t>(row * whole_[1] + column)] += part[i++];
        }
      }
    }
    for (const std::vector<double>& copy : copies) {
      EXPECT_TRUE(copy.empty() || copy == copies[0]) << what << ": ranks differ";
    }
    return copies[0];
  }

  /// The product of a value of this type and a gradient of the dual type: summed over the ranks,
  /// but an invariant value counts once.
  double pairing(const std::vector<std::vector<double>>& values,
                 const std::vector<std::vector<double>>& gradients) const {
    double sum = 0;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      if (position_among(mesh_, distribution_, rank, Placement::invariant) > 0) continue;
      const auto at = static_cast<size_t>(rank);
      for (size_t i = 0; i < values[at].size(); ++i) sum += values[at][i] * gradients[at][i];
    }
    return sum;
  }

 private:
  const Mesh& mesh_;
  Distribution distribution_;
  Shape whole_;
};

}  // namespace tessera::testing
