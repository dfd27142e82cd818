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

/// Where the pieces of a group's ranks lie in the whole that they make together.
///
/// The whole is an array [outer, extent, inner]. Each rank has some runs of the extent, the same in
/// each of the outer blocks. In a rank's piece they lie one after the other: it is an array [outer,
/// length of all runs, inner]. So joining pieces of positions of several sequences puts them
/// together sequence by sequence, where a sequence is an outer block.
class PieceLayout {
 public:
  /// `runs` has one list for each rank of the group. Throws InternalError if the runs do not cover
  /// the extent, each element once.
  PieceLayout(int64_t outer, int64_t extent, int64_t inner,
              std::vector<std::vector<ElementRun>> runs);

  int ranks() const { return static_cast<int>(runs_.size()); }
  /// The outer blocks of the whole.
  int64_t outer() const { return outer_; }
  int64_t extent() const { return extent_; }
  /// Elements of an outer block of the whole.
  int64_t block_elements() const { return extent_ * inner_; }
  /// Elements of an element of the extent.
  int64_t inner() const { return inner_; }
  /// The runs of the extent that the rank at a position has, in the order of its piece.
  std::span<const ElementRun> runs(int position) const {
    return runs_[static_cast<size_t>(position)];
  }
  /// Elements of the whole.
  int64_t elements() const { return outer_ * extent_ * inner_; }
  /// Elements of the piece of the rank at a position of the group.
  int64_t elements(int position) const;
  /// Whether the piece lies in the whole as one block.
  bool one_block(int position) const;
  /// Whether all pieces are such blocks.
  bool all_one_block() const;
  /// Where the piece begins in the whole, if it is one block; 0 if it is empty.
  int64_t begin(int position) const;
  /// Whether all pieces are such blocks of one size, in the order of the ranks: what libraries of
  /// collectives know without our help.
  bool even_blocks() const;
  /// A number that is the same for equal layouts and differs for different ones.
  uint64_t fingerprint() const { return fingerprint_; }
  /// The layout in words: "2 x [16] x 8: 0-3 12-15 | 4-11".
  std::string text() const;

  /// The blocks that for_each_block() visits, one after the other.
  class Blocks {
   public:
    /// Refers to the layout.
    Blocks(const PieceLayout& layout, int position)
        : layout_(layout), runs_(layout.runs_[static_cast<size_t>(position)]) {}

    bool done() const { return runs_.empty() || block_ == layout_.outer_; }
    int64_t in_whole() const {
      return (block_ * layout_.extent_ + runs_[run_].place) * layout_.inner_;
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
    int64_t block_ = 0;  // of the outer ones
    size_t run_ = 0;
    int64_t in_piece_ = 0;
  };

  /// Calls visit(place in the whole, place in the piece, length) for each block of consecutive
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

/// Equal consecutive parts of `elements` elements. Throws Error if they do not divide.
PieceLayout even_pieces(int64_t elements, int ranks);

/// The pieces of a whole of this shape, which is split along an axis of `ranks` ranks as `type`
/// says. Throws Error if the pieces do not divide the dim, with the numbers.
PieceLayout pieces_of(const Shape& whole, const TypeOnAxis& type, int ranks);

/// The shape that the pieces of `ranks` ranks have together along an axis, where one of them has
/// `own`. Throws Error as joined_extent() does.
Shape joined_shape(const Shape& own, const TypeOnAxis& type, int ranks);

}  // namespace tessera
