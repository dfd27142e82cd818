#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checkpoint/region.h"

namespace tessera {

/// Which elements a box of a tensor and a piece of it have in common, and where each of the two has
/// them. Both count their elements row by row.
class RegionCopy {
 public:
  RegionCopy(const Region& box, const PieceRuns& piece);

  /// Calls visit(element of the box, element of the piece, count) for the common elements among
  /// [begin, end) of the box, as few times as they lie together in both, in the order of the box.
  template <typename Visit>
  void for_each(int64_t begin, int64_t end, Visit&& visit) const {
    if (begin < end) visit_dim(0, {0, 0}, {begin, end}, visit);
  }
  /// Whether they have any of these elements of the box in common.
  bool any(int64_t begin, int64_t end) const;

 private:
  /// Elements of a dim that both have.
  struct Shared {
    int64_t in_box, in_piece, length;
  };
  struct Dim {
    std::vector<Shared> runs;                  // in the order of the box
    int64_t box_extent = 0, piece_extent = 0;  // elements of the dim
    int64_t box_stride = 1, piece_stride = 1;  // elements from one index to the next
  };
  struct Place {
    int64_t in_box, in_piece;
  };
  struct Range {
    int64_t begin, end;
  };

  template <typename Visit>
  void visit_dim(size_t number, Place base, Range range, Visit& visit) const {
    if (number == dims_.size()) return visit_run(base, inner_, range, visit);
    const Dim& dim = dims_[number];
    for (const Shared& run : dim.runs) {
      const Place first{base.in_box + run.in_box * dim.box_stride,
                        base.in_piece + run.in_piece * dim.piece_stride};
      if (number + 1 == dims_.size()) {
        visit_run(first, run.length * inner_, range, visit);
        continue;
      }
      const int64_t stride = dim.box_stride;
      const int64_t from = std::max<int64_t>(0, (range.begin - first.in_box) / stride);
      const int64_t to = std::min(run.length, (range.end - first.in_box + stride - 1) / stride);
      for (int64_t i = from; i < to; ++i) {
        visit_dim(number + 1, {first.in_box + i * stride, first.in_piece + i * dim.piece_stride},
                  range, visit);
      }
    }
  }

  template <typename Visit>
  void visit_run(Place first, int64_t length, Range range, Visit& visit) const {
    const int64_t from = std::max(first.in_box, range.begin);
    const int64_t to = std::min(first.in_box + length, range.end);
    if (from < to) visit(from, first.in_piece + from - first.in_box, to - from);
  }

  std::vector<Dim> dims_;  // outermost first, without the inner ones that both have whole
  int64_t inner_ = 1;      // elements of those
};

}  // namespace tessera
