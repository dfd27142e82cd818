#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "comm/piece_layout.h"

namespace tessera {

/// A cursor that goes through a rank's piece of a whole (PieceLayout) from its beginning. Each call
/// copies the next elements between the whole, where the piece may be several blocks, and memory
/// where the piece is contiguous.
class PieceCursor {
 public:
  /// Creates a cursor at the beginning of the piece. It refers to the layout. An element has `size`
  /// bytes.
  PieceCursor(const PieceLayout& layout, int position, int64_t size)
      : blocks_(layout, position), size_(size) {}

  /// Copies the next elements of the piece from the whole to `to`, where they are contiguous.
  void gather(const std::byte* whole, int64_t elements, std::byte* to) {
    step(elements, [&](int64_t in_whole, int64_t done, int64_t count) {
      std::memcpy(to + done * size_, whole + in_whole * size_, static_cast<size_t>(count * size_));
    });
  }
  /// Copies the next elements of the piece from `from`, where they are contiguous, to the whole.
  void scatter(const std::byte* from, int64_t elements, std::byte* whole) {
    step(elements, [&](int64_t in_whole, int64_t done, int64_t count) {
      std::memcpy(whole + in_whole * size_, from + done * size_,
                  static_cast<size_t>(count * size_));
    });
  }

 private:
  template <typename Copy>
  void step(int64_t elements, Copy&& copy) {
    for (int64_t done = 0; done < elements;) {
      const int64_t count = std::min(elements - done, blocks_.length() - in_block_);
      copy(blocks_.in_whole() + in_block_, done, count);
      done += count;
      in_block_ += count;
      if (in_block_ == blocks_.length()) {
        blocks_.next();
        in_block_ = 0;
      }
    }
  }

  PieceLayout::Blocks blocks_;
  int64_t size_;
  int64_t in_block_ = 0;
};

}  // namespace tessera
