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

/// The layout of the pieces of a group's ranks in the whole that they make together.
///
/// The whole is an array [outer, extent, inner]. Each rank has some runs of the extent, the same in
/// each of the outer blocks. Its piece has these runs one after the other: it is an array [outer,
/// length of all runs, inner]. So if an outer block is a sequence, and the pieces have positions of
/// several sequences, joining them puts them together sequence by sequence.
class PieceLayout {
 public:
  /// `runs` has one list for each rank of the group. Throws InternalError if the runs do not cover
  /// the extent, each element once.
  PieceLayout(int64_t outer, int64_t extent, int64_t inner,
              std::vector<std::vector<ElementRun>> runs);

  int ranks() const { return static_cast<int>(runs_.size()); }
  /// Returns the number of outer blocks of the whole.
  int64_t outer() const { return outer_; }
  int64_t extent() const { return extent_; }
  /// Returns the number of elements of an outer block of the whole.
  int64_t block_elements() const { return extent_ * inner_; }
  /// Returns the number of elements for each index of the extent.
  int64_t inner() const { return inner_; }
  /// Returns the runs of the extent that the rank at a position has, in the order of its piece.
  std::span<const ElementRun> runs(int position) const {
    return runs_[static_cast<size_t>(position)];
  }
  /// Returns the number of elements of the whole.
  int64_t elements() const { return outer_ * extent_ * inner_; }
  /// Returns the number of elements of the piece of the rank at a position of the group.
  int64_t elements(int position) const;
  /// Returns whether the piece is one consecutive block of the whole.
  bool one_block(int position) const;
  /// Returns whether all pieces are such blocks.
  bool all_one_block() const;
  /// Returns the offset in the whole at which a piece of one block begins; 0 if it is empty.
  int64_t begin(int position) const;
  /// Returns whether all pieces are such blocks of one size, in the order of the ranks: the layout
  /// that the calls of collective libraries have.
  bool even_blocks() const;
  /// Returns a number that is the same for equal layouts and differs for different ones.
  uint64_t fingerprint() const { return fingerprint_; }
  /// Returns the layout in words: "2 x [16] x 8: 0-3 12-15 | 4-11".
  std::string text() const;

  /// An iterator over the blocks that for_each_block() visits.
  class Blocks {
   public:
    /// The layout must outlive the iterator.
    Blocks(const PieceLayout& layout, int position)
        : layout_(layout), runs_(layout.runs_[static_cast<size_t>(position)]) {}

    bool done() const { return runs_.empty() || block_ == layout_.outer_; }
    int64_t in_whole() const {
      return (block_ * layout_.extent_ + runs_[run_].begin) * layout_.inner_;
    }
    int64_t in_piece() const { return in_piece_; }
    int64_t length() const { return runs_[run_].length * layout_.inner_; }
    void next() {
      in_piece_ += length();
      if (++run_ < runs_.size()) return;
      run_ = 0;
      ++block_;
    }

   private:
    const PieceLayout& layout_;
    std::span<const ElementRun> runs_;
    int64_t block_ = 0;  // the index of the outer block
    size_t run_ = 0;
    int64_t in_piece_ = 0;
  };

  /// Calls visit(offset in the whole, offset in the piece, length) for each block of consecutive
  /// elements of a rank's piece, in their order.
  template <typename Visit>
  void for_each_block(int position, Visit&& visit) const {
    for (Blocks blocks(*this, position); !blocks.done(); blocks.next()) {
      visit(blocks.in_whole(), blocks.in_piece(), blocks.length());
    }
  }

 private:
  void check_cover() const;

  int64_t outer_;
  int64_t extent_;
  int64_t inner_;
  std::vector<std::vector<ElementRun>> runs_;  // by position; neighbours are joined
  uint64_t fingerprint_ = 0;
};

/// Returns the layout of equal consecutive parts of `elements` elements. Throws Error if they do
/// not divide.
PieceLayout even_pieces(int64_t elements, int ranks);

/// Returns the layout of the pieces of a whole of this shape, which is split along an axis of
/// `ranks` ranks as `type` says. Throws Error if the pieces do not divide the dim, with the
/// numbers.
PieceLayout pieces_of(const Shape& whole, const TypeOnAxis& type, int ranks);

/// Returns the shape that the pieces of `ranks` ranks have together along an axis, where one of
/// them has `own`. Throws Error as joined_extent() does.
Shape joined_shape(const Shape& own, const TypeOnAxis& type, int ranks);

}  // namespace tessera
