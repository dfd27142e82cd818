#include "data/sentencepiece/word_cuts.h"

#include <algorithm>
#include <bit>

namespace tessera {
namespace {

constexpr size_t kBitsAPair = 8;
constexpr size_t kFewestBits = 1024;
constexpr size_t kMostBits = size_t{1} << 24;

}  // namespace

WordCuts::WordCuts(size_t characters)
    : mask_(std::bit_ceil(std::clamp(kBitsAPair * characters, kFewestBits, kMostBits)) - 1) {
  others_.resize((mask_ + 1) / 64);
}

void WordCuts::keep_whole(std::string_view piece) {
  uint32_t left = 0;
  for (bool first = true; !piece.empty(); first = false) {
    const uint32_t right = code(piece);
    if (!first && (left | right) < 0x80) {
      ascii_[left << 7 | right] = 1;
    } else if (!first) {
      const uint64_t bit = bit_index(left, right);
      others_[bit / 64] |= uint64_t{1} << bit % 64;
    }
    left = right;
    piece.remove_prefix(character_size(piece));
  }
}

}  // namespace tessera
