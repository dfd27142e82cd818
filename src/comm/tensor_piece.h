#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/distribution.h"
#include "comm/piece_indices.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace tessera {

/// The piece of a logical tensor that one rank holds: some runs of elements of each dim, and all
/// their combinations. Random numbers and checkpoints use indices in the whole, so they do not
/// depend on the division into pieces.
class TensorPiece {
 public:
  /// Makes a piece that is the whole tensor.
  explicit TensorPiece(const Shape& whole);
  /// Makes the piece of a rank. Throws Error, with the numbers, if a dim does not divide into its
  /// pieces. Throws InternalError if the tensor varies over an axis and so has no logical whole.
  TensorPiece(const Mesh& mesh, const Distribution& distribution, const Shape& whole, int rank);
  /// Makes the piece of these runs, one list for each dim, in the order of the piece.
  TensorPiece(const Shape& whole, std::span<const std::vector<ElementRun>> runs);

  const Shape& whole() const { return whole_; }
  const Shape& shape() const { return shape_; }
  /// Returns the runs of a dim of the whole that the piece has, in the order of the piece.
  std::span<const ElementRun> runs(int dim) const { return runs_[static_cast<size_t>(dim)]; }
  /// Returns the index in the whole of an element of the piece. Both indices count row by row.
  int64_t element_of_whole(int64_t element) const;
  /// Returns the part of the piece that has one run of each dim. The runs count in the piece.
  TensorPiece part(std::span<const ElementRun> dim_runs) const;
  bool is_whole() const { return is_whole_; }
  /// Copies the piece out of the whole. Both are in host memory and of one element type.
  void copy_from(const Tensor& whole, const Tensor& piece) const;

  bool operator==(const TensorPiece&) const = default;

 private:
  /// Computes the shape, is_whole_ and ends_ from the runs.
  void complete();

  Shape whole_;
  Shape shape_;
  bool is_whole_ = true;
  std::vector<std::vector<ElementRun>> runs_;  // by dim; no run is empty, neighbours are joined
  std::vector<std::vector<int64_t>> ends_;     // by dim and run: the index in the piece of its end
};

}  // namespace tessera
