#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/tensor_piece.h"
#include "tensor/shape.h"

namespace tessera {

/// A box of a tensor: of each dim, consecutive elements. Checkpoints store tensors in such boxes.
struct Region {
  std::vector<ElementRun> dims;

  static Region whole_of(const Shape& shape);

  Shape shape() const;
  int64_t elements() const { return shape().elements(); }
  bool is_whole_of(const Shape& whole) const { return *this == whole_of(whole); }
  /// The region as one piece of the tensor.
  PieceRuns runs() const;
  /// "[0:128, 64:96]", of each dim the first element and the one after the last.
  std::string text() const;
  bool operator==(const Region&) const = default;
};

/// The boxes of which a piece consists: the products of its runs, row by row.
std::vector<Region> boxes_of(const PieceRuns& runs);

/// What keeps the regions from covering a tensor, each element once; empty if they do.
std::string cover_problem(const Shape& whole, std::span<const Region> regions);

}  // namespace tessera
