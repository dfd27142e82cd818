#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/piece_layout.h"

namespace tessera {

/// The blocks that two splits of one whole have in common. `split` and `other` are layouts of the
/// same whole, and their runs ascend. Calls visit(place in the piece of `position`, place in the
/// piece of `other_position`, length) for each, in their order in the whole.
template <typename Visit>
void for_each_common_block(const PieceLayout& split, int position, const PieceLayout& other,
                           int other_position, Visit&& visit) {
  struct Block {
    int64_t begin, end, in_piece;
  };
  std::vector<Block> own;
  split.for_each_block(position, [&](int64_t in_whole, int64_t in_piece, int64_t length) {
    own.push_back({in_whole, in_whole + length, in_piece});
  });
  size_t first = 0;
  other.for_each_block(other_position, [&](int64_t in_whole, int64_t in_piece, int64_t length) {
    const int64_t end = in_whole + length;
    while (first < own.size() && own[first].end <= in_whole) ++first;
    for (size_t i = first; i < own.size() && own[i].begin < end; ++i) {
      const int64_t from = std::max(own[i].begin, in_whole);
      visit(own[i].in_piece + from - own[i].begin, in_piece + from - in_whole,
            std::min(own[i].end, end) - from);
    }
  });
}

/// The elements that two splits of one whole have in common.
inline int64_t common_elements(const PieceLayout& split, int position, const PieceLayout& other,
                               int other_position) {
  int64_t elements = 0;
  for_each_common_block(split, position, other, other_position,
                        [&](int64_t, int64_t, int64_t length) { elements += length; });
  return elements;
}

}  // namespace tessera
