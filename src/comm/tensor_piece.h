#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/distribution.h"
#include "comm/piece_indices.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace tessera {

/// Of each dim of a tensor, the elements that a piece of it has, in the order of the piece.
using PieceRuns = std::vector<std::vector<ElementRun>>;

/// The piece of a logical tensor that one rank holds, and where its elements are in the whole.
/// Random numbers and checkpoints go by the elements of the whole, so they do not depend on the
/// layout.
class TensorPiece {
 public:
  /// A tensor that lies whole on every rank.
  explicit TensorPiece(const Shape& whole) : whole_(whole), shape_(whole) {}
  /// Throws Error, with the numbers, if a dim does not divide into its pieces; InternalError if the
  /// tensor varies over an axis and so has no logical whole.
  TensorPiece(const Mesh& mesh, const Distribution& distribution, const Shape& whole, int rank);

  const Shape& whole() const { return whole_; }
  /// Of the piece.
  const Shape& shape() const { return shape_; }
  /// The place, in the whole, of an element of the piece; both count row by row.
  int64_t element_of_whole(int64_t element) const;
  /// Which elements of the whole it has: the product of those of each dim.
  PieceRuns runs() const;
  /// The part of it that has these elements of each of its dims.
  TensorPiece part(std::span<const ElementRun> dims) const;
  /// Whether it is all of the tensor.
  bool is_whole() const { return shape_ == whole_; }
  /// Copies it out of the whole. Both tensors lie on the processor and have one element type.
  void take(const Tensor& whole, const Tensor& piece) const;

 private:
  Shape whole_;
  Shape shape_;
  std::vector<std::vector<int64_t>> indices_;  // by dim; empty where nothing is split
};

}  // namespace tessera
