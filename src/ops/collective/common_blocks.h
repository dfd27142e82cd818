#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/piece_layout.h"

namespace tessera {

/// Visits the blocks that a piece of one split and a piece of another split of the same whole have
/// in common. The runs of both layouts ascend. Calls visit(offset in the piece of `position`,
/// offset in the piece of `other_position`, length) for each, in their order in the whole.
template <typename Visit>
void for_each_common_block(const PieceLayout& split, int position, const PieceLayout& other,
                           int other_position, Visit&& visit) {
  PieceLayout::Blocks own(split, position);
  PieceLayout::Blocks theirs(other, other_position);
  while (!own.done() && !theirs.done()) {
    const int64_t begin = std::max(own.in_whole(), theirs.in_whole());
    const int64_t own_end = own.in_whole() + own.length();
    const int64_t their_end = theirs.in_whole() + theirs.length();
    const int64_t end = std::min(own_end, their_end);
    if (begin < end) {
      visit(own.in_piece() + begin - own.in_whole(), theirs.in_piece() + begin - theirs.in_whole(),
            end - begin);
    }
    (own_end <= their_end ? own : theirs).next();
  }
}

/// Returns the number of elements that these two pieces have in common.
inline int64_t common_elements(const PieceLayout& split, int position, const PieceLayout& other,
                               int other_position) {
  int64_t elements = 0;
  for_each_common_block(split, position, other, other_position,
                        [&](int64_t, int64_t, int64_t length) { elements += length; });
  return elements;
}

}  // namespace tessera
