#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/distribution.h"
#include "comm/piece_indices.h"
#include "tensor/shape.h"

namespace tessera {

/// The division of a whole tensor into pieces, one for each rank of a group.
///
/// The whole is an array [outer, extent, inner]: `outer` blocks of [extent, inner]. Each rank has
/// some runs of the extent, the same in each block. Its piece is the array [outer, length of its
/// runs, inner]. For example, a block is a sequence, and each rank has some positions of each.
///
/// A *position* is the index of a rank in the group. An *offset* counts elements from the beginning
/// of the whole or of a piece. In each block of the whole, each run is a contiguous range.
class PieceLayout {
 public:
  /// `runs` has one list for each rank of the group. Throws InternalError if the runs do not cover
  /// the extent, each element once.
  PieceLayout(int64_t outer, int64_t extent, int64_t inner,
              std::vector<std::vector<ElementRun>> runs);

  int ranks() const { return static_cast<int>(runs_.size()); }
  int64_t outer() const { return outer_; }
  int64_t extent() const { return extent_; }
  int64_t inner() const { return inner_; }
  int64_t block_elements() const { return extent_ * inner_; }     ///< of a block of the whole
  int64_t elements() const { return outer_ * extent_ * inner_; }  ///< of the whole
  /// Returns the runs of the extent that a rank has, in the order of its piece.
  std::span<const ElementRun> runs(int position) const {
    return runs_[static_cast<size_t>(position)];
  }
  /// Returns the number of elements of a rank's piece.
  int64_t elements(int position) const;
  int64_t max_elements() const;  ///< the number of elements of the largest piece
  /// Returns whether a piece is contiguous in the whole; may be false for an empty piece.
  bool is_contiguous(int position) const;
  bool all_contiguous() const;
  /// Returns the offset in the whole at which a piece begins; 0 if it is empty.
  int64_t piece_begin(int position) const;
  /// Returns whether all pieces are contiguous and equally long, in the order of the ranks: the
  /// layout that the calls of collective libraries have.
  bool is_even() const;
  /// Returns a hash of the layout, by which ranks compare their layouts.
  uint64_t hash() const { return hash_; }
  /// Returns the layout in words: "2 x [16] x 8: 0-3 12-15 | 4-11".
  std::string text() const;

  /// An iterator over the contiguous ranges of a piece, in the order of the piece.
  class RangeIterator {
   public:
    /// Begins with the outer block in which the element `offset` of the piece is. The layout must
    /// outlive the iterator.
    RangeIterator(const PieceLayout& layout, int position, int64_t offset = 0)
        : layout_(layout), runs_(layout.runs_[static_cast<size_t>(position)]) {
      if (offset == 0) return;
      const int64_t block_elements = layout.elements(position) / layout.outer_;
      block_ = offset / block_elements;
      piece_offset_ = block_ * block_elements;
    }

    bool done() const { return runs_.empty() || block_ == layout_.outer_; }
    int64_t whole_offset() const {
      return (block_ * layout_.extent_ + runs_[run_].begin) * layout_.inner_;
    }
    int64_t piece_offset() const { return piece_offset_; }
    int64_t length() const { return runs_[run_].length * layout_.inner_; }
    void next() {
      piece_offset_ += length();
      if (++run_ < runs_.size()) return;
      run_ = 0;
      ++block_;
    }

   private:
    const PieceLayout& layout_;
    std::span<const ElementRun> runs_;
    int64_t block_ = 0;  // the index of the block
    size_t run_ = 0;     // the index of the run
    int64_t piece_offset_ = 0;
  };

  /// Calls visit(offset in the whole, offset in the piece, length) for each range of a piece. A
  /// contiguous piece may also have several ranges, which then follow each other.
  template <typename Visit>
  void for_each_range(int position, Visit&& visit) const {
    for (RangeIterator range(*this, position); !range.done(); range.next()) {
      visit(range.whole_offset(), range.piece_offset(), range.length());
    }
  }

  /// Calls visit() likewise for the ranges of `elements` elements of a piece, from `begin` on.
  template <typename Visit>
  void for_each_range(int position, int64_t begin, int64_t elements, Visit&& visit) const {
    if (elements == 0) return;
    for (RangeIterator range(*this, position, begin); !range.done(); range.next()) {
      const ElementRun part =
          intersection({begin, elements}, {range.piece_offset(), range.length()});
      if (range.piece_offset() >= begin + elements) return;
      if (part.length == 0) continue;
      visit(range.whole_offset() + part.begin - range.piece_offset(), part.begin, part.length);
    }
  }

 private:
  void check_cover() const;

  int64_t outer_;
  int64_t extent_;
  int64_t inner_;
  std::vector<std::vector<ElementRun>> runs_;  // by position; neighbours are joined
  uint64_t hash_ = 0;
};

/// Returns the layout in which `ranks` ranks have equal consecutive parts of an array. Throws Error
/// if the elements do not divide.
PieceLayout even_pieces(int64_t elements, int ranks);

/// Returns the layout of a whole of this shape that is split over an axis of `ranks` ranks as
/// `type` says. Throws Error if the pieces do not divide the dim.
PieceLayout pieces_of(const Shape& whole, const TypeOnAxis& type, int ranks);

/// Returns the shape that the pieces of all `ranks` ranks of an axis have together, given the shape
/// of one piece. Throws Error as joined_extent() does.
Shape joined_shape(const Shape& piece, const TypeOnAxis& type, int ranks);

}  // namespace tessera
