#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/tensor_piece.h"
#include "tensor/shape.h"

namespace tessera {

/// A box of a tensor: consecutive elements of each dim. Checkpoints store tensors in such boxes.
struct Region {
  std::vector<ElementRun> dims;

  static Region whole_of(const Shape& shape);

  Shape shape() const;
  int64_t elements() const { return shape().elements(); }
  bool is_whole_of(const Shape& whole) const { return *this == whole_of(whole); }
  TensorPiece piece_of(const Shape& whole) const;
  /// Returns "[0:128, 64:96]": of each dim the first element and the one after the last.
  std::string text() const;
  bool operator==(const Region&) const = default;
};

/// Returns the regions of which a piece consists: the products of its runs, row by row.
std::vector<Region> regions_of(const TensorPiece& piece);

/// Receives `count` elements that a region and a piece of one tensor have in common, which are
/// consecutive in both. Both count their own elements row by row.
using CommonElements = std::function<void(int64_t in_region, int64_t in_piece, int64_t count)>;

/// Calls visit() for those of the elements [begin, end) of a region that a piece of the same tensor
/// has as well, in the order of the region. Each call has a run of consecutive elements.
void visit_common(const Region& region, const TensorPiece& piece, int64_t begin, int64_t end,
                  const CommonElements& visit);
/// Returns whether visit_common() finds any elements.
bool any_common(const Region& region, const TensorPiece& piece, int64_t begin, int64_t end);

/// Returns why the regions do not cover a tensor, each element once; empty if they do.
std::string cover_problem(const Shape& whole, std::span<const Region> regions);

}  // namespace tessera
