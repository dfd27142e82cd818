#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/tensor_piece.h"
#include "support/operation_run.h"

namespace tessera::testing {

/// A tensor of these numbers, rounded to its type: floating, or i32.
inline Tensor tensor_of(const Shape& shape, DType dtype, std::span<const double> numbers) {
  TESSERA_CHECK(shape.elements() == std::ssize(numbers), "{} numbers for {}", numbers.size(),
                shape.text());
  const Tensor result(shape, dtype);
  if (dtype == DType::i32) {
    std::ranges::transform(numbers, result.data<int32_t>(),
                           [](double number) { return static_cast<int32_t>(number); });
    return result;
  }
  const Tensor wide(shape, DType::f64);
  std::ranges::copy(numbers, wide.data<double>());
  convert(wide, result);
  return result;
}

/// Small whole numbers of both signs, the same at every call: their sums are exact in every type.
inline std::vector<double> small_numbers(int64_t count, const std::string& name) {
  std::vector<double> numbers;
  const CounterRandom random(31, name);
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(static_cast<double>(random.bits(static_cast<uint64_t>(i)) % 17) - 8);
  }
  return numbers;
}

/// The position of a rank among those with which it shares a type: its coordinates along the axes
/// on which the value is of that type, as one number.
inline int position_among(const Mesh& mesh, const Distribution& distribution, int rank,
                          Placement placement) {
  int position = 0;
  for (const Axis axis : mesh.axes_of(distribution.view())) {
    if (distribution.on(axis).placement != placement) continue;
    position = position * mesh.size(axis) + mesh.coordinate(rank, axis);
  }
  return position;
}

/// How many ranks share a sum: their addends make the value.
inline int addend_count(const Mesh& mesh, const Distribution& distribution) {
  int count = 1;
  for (const Axis axis : mesh.axes_of(distribution.view())) {
    if (distribution.on(axis).placement == Placement::partial) count *= mesh.size(axis);
  }
  return count;
}

/// What a rank has of a logical tensor that lies like this: its piece where it is sharded, all of
/// it where it is invariant or replicated, and where it is partial an addend. The addends are small
/// whole numbers, but for that of the first rank, which has the rest.
inline Tensor part_of_rank(const Mesh& mesh, const Distribution& distribution, const Tensor& whole,
                           int rank) {
  const TensorPiece piece(mesh, distribution, whole.shape(), rank);
  const std::vector<double> numbers = numbers_of(whole);
  const int addends = addend_count(mesh, distribution);
  const int position = position_among(mesh, distribution, rank, Placement::partial);
  std::vector<std::vector<double>> others;
  for (int other = 1; other < addends; ++other) {
    others.push_back(small_numbers(whole.elements(), fmt::format("addend {}", other)));
  }
  std::vector<double> own;
  for (int64_t i = 0; i < piece.shape().elements(); ++i) {
    const auto at = static_cast<size_t>(piece.element_of_whole(i));
    double number = position == 0 ? numbers[at] : others[static_cast<size_t>(position) - 1][at];
    if (position == 0) {
      for (const std::vector<double>& other : others) number -= other[at];
    }
    own.push_back(number);
  }
  return tensor_of(piece.shape(), whole.dtype(), own);
}

/// The shape of the logical tensor of which the ranks have parts of these shapes.
inline Shape whole_shape(const Mesh& mesh, const Distribution& distribution,
                         std::span<const Tensor> parts) {
  Shape shape = parts[0].shape();
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const std::span<const Axis> splits = distribution.order(dim);
    int64_t extent = 0;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const bool counts = mesh.coordinate(rank, mesh.pipeline()) == 0 &&
                          std::ranges::all_of(mesh.axes_of(distribution.view()), [&](Axis axis) {
                            return std::ranges::find(splits, axis) != splits.end() ||
                                   mesh.coordinate(rank, axis) == 0;
                          });
      if (counts) extent += parts[static_cast<size_t>(rank)].shape()[dim];
    }
    shape = shape.with_dim(dim, extent);
  }
  return shape;
}

/// Puts together, in f64, the logical tensor of which the ranks of the first pipeline stage have
/// `parts`: pieces where it is sharded, addends where it is partial. It fails the test, naming
/// `what`, if ranks that must have the same do not, or if the pieces do not make a whole.
inline Tensor whole_of_ranks(const Mesh& mesh, const Distribution& distribution,
                             std::span<const Tensor> parts, const std::string& what) {
  const Tensor whole(whole_shape(mesh, distribution, parts), DType::f64);
  struct Copy {
    std::vector<double> sums;
    std::vector<int> addends;
  };
  const auto elements = static_cast<size_t>(whole.elements());
  std::map<std::pair<int, int>, Copy> copies;  // by the ranks' place where all have the same
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.coordinate(rank, mesh.pipeline()) != 0) continue;
    Copy& copy = copies[{position_among(mesh, distribution, rank, Placement::invariant),
                         position_among(mesh, distribution, rank, Placement::replicated)}];
    copy.sums.resize(elements);
    copy.addends.resize(elements);
    const TensorPiece piece(mesh, distribution, whole.shape(), rank);
    const std::vector<double> numbers = numbers_of(parts[static_cast<size_t>(rank)]);
    EXPECT_EQ(piece.shape().elements(), std::ssize(numbers)) << what << " of rank " << rank;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto at = static_cast<size_t>(piece.element_of_whole(static_cast<int64_t>(i)));
      copy.sums[at] += numbers[i];
      ++copy.addends[at];
    }
  }
  const Copy& first = copies.begin()->second;
  const std::vector<int> expected(elements, addend_count(mesh, distribution));
  for (const auto& [place, copy] : copies) {
    EXPECT_EQ(copy.addends, expected) << what << ": pieces that do not make a whole";
    EXPECT_EQ(copy.sums, first.sums) << what << ": ranks differ that must have the same";
  }
  std::ranges::copy(first.sums, whole.data<double>());
  return whole;
}

}  // namespace tessera::testing
