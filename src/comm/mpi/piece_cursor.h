#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "comm/piece_layout.h"

namespace tessera {

/// A cursor that goes through a rank's piece of a whole (PieceLayout) from its beginning. Each call
/// copies the next elements between the whole, where the piece may consist of several ranges, and
/// memory where the elements are contiguous.
class PieceCursor {
 public:
  /// Begins with the first element of the piece. Refers to the layout.
  PieceCursor(const PieceLayout& layout, int position, int64_t element_bytes)
      : range_(layout, position), element_bytes_(element_bytes) {}

  /// Copies the next elements of the piece from the whole to `to`, where they are contiguous.
  void gather(const std::byte* whole, int64_t elements, std::byte* to) {
    step(elements, [&](int64_t whole_offset, int64_t done, int64_t count) {
      std::memcpy(to + done * element_bytes_, whole + whole_offset * element_bytes_,
                  static_cast<size_t>(count * element_bytes_));
    });
  }
  /// Copies the next elements of the piece from `from`, where they are contiguous, to the whole.
  void scatter(const std::byte* from, int64_t elements, std::byte* whole) {
    step(elements, [&](int64_t whole_offset, int64_t done, int64_t count) {
      std::memcpy(whole + whole_offset * element_bytes_, from + done * element_bytes_,
                  static_cast<size_t>(count * element_bytes_));
    });
  }

 private:
  /// Calls copy(offset in the whole, offset in contiguous memory, length) for the next ranges.
  template <typename Copy>
  void step(int64_t elements, Copy&& copy) {
    for (int64_t done = 0; done < elements;) {
      const int64_t count = std::min(elements - done, range_.length() - range_offset_);
      copy(range_.whole_offset() + range_offset_, done, count);
      done += count;
      range_offset_ += count;
      if (range_offset_ == range_.length()) {
        range_.next();
        range_offset_ = 0;
      }
    }
  }

  PieceLayout::RangeIterator range_;
  int64_t element_bytes_;
  int64_t range_offset_ = 0;  // of the next element in the range
};

}  // namespace tessera
