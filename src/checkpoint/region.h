#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/tensor_piece.h"
#include "tensor/shape.h"

namespace tessera {

/// A box of a tensor: one run of consecutive indices in each dim. Checkpoints store tensors in such
/// boxes. A TensorPiece, which a rank holds, may have several runs in a dim.
struct Region {
  std::vector<ElementRun> dims;

  static Region whole_of(const Shape& shape);

  Shape shape() const;
  int64_t elements() const { return shape().elements(); }
  bool is_whole_of(const Shape& whole) const { return *this == whole_of(whole); }
  /// Returns the region as a piece of a tensor of that shape.
  TensorPiece piece_of(const Shape& whole) const;
  /// Returns "[0:128, 64:96]": in each dim the first index and the one after the last.
  std::string text() const;
  bool operator==(const Region&) const = default;
};

/// Returns the regions of a piece, row by row: one for each combination of its runs in all dims.
std::vector<Region> regions_of(const TensorPiece& piece);

/// Receives `count` elements that a region and a piece of one tensor share, consecutive in both.
/// The first has these indices among the region's and the piece's elements, counted row by row.
using CommonElements = std::function<void(int64_t in_region, int64_t in_piece, int64_t count)>;

/// Calls visit() for those of the elements [begin, end) of a region that a piece of the same tensor
/// also has, run by run in the order of the region.
void visit_common(const Region& region, const TensorPiece& piece, int64_t begin, int64_t end,
                  const CommonElements& visit);
/// Returns whether visit_common() finds any elements.
bool any_common(const Region& region, const TensorPiece& piece, int64_t begin, int64_t end);

/// Returns why the regions do not cover each element of a tensor exactly once; empty if they do.
std::string cover_problem(const Shape& whole, std::span<const Region> regions);

}  // namespace tessera
