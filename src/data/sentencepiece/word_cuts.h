#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sentencepiece/utf8_character.h"

namespace tessera {

/// Finds the offsets at which a text can be cut without a change of its pieces. Such a cut is
/// between two characters that are neighbours in no piece, so no piece spans it. The text between
/// two cuts is called a word. In text with spaces, it mostly is a word with the space before it.
class WordCuts {
 public:
  /// `characters` is about the sum of the lengths of the pieces that will be added.
  explicit WordCuts(size_t characters)
      : mask_(std::bit_ceil(std::clamp(kBitsPerPair * characters, kFewestBits, kMaxBits)) - 1) {
    other_pairs_.resize((mask_ + 1) / 64);
  }

  /// Adds a piece, valid UTF-8. No cut will be made within it.
  void keep_whole(std::string_view piece) {
    uint32_t left = 0;
    for (bool first = true; !piece.empty(); first = false) {
      const uint32_t right = code(piece);
      if (!first && (left | right) < 0x80) {
        ascii_pairs_[left << 7 | right] = 1;
      } else if (!first) {
        const uint64_t bit = bit_index(left, right);
        other_pairs_[bit / 64] |= uint64_t{1} << bit % 64;
      }
      left = right;
      piece.remove_prefix(character_size(piece));
    }
  }
  /// Returns the length of the first word of `text`, which is valid UTF-8 and not empty. Returns
  /// the length of `text` if no word ends within it. `begin` is the offset of a character; the text
  /// up to its start is known to contain no cut.
  size_t first_word_length(std::string_view text, size_t begin = 0) const {
    uint32_t left = code(text.substr(begin));
    size_t end = begin + character_size(text.substr(begin));
    while (end < text.size()) {
      const std::string_view rest = text.substr(end);
      const uint32_t right = code(rest);
      if (!may_join(left, right)) return end;
      left = right;
      end += character_size(rest);
    }
    return end;
  }

 private:
  // The size of other_pairs_, in bits. With 8 bits per pair, few pairs share a bit.
  static constexpr size_t kBitsPerPair = 8;
  static constexpr size_t kFewestBits = 1024;
  static constexpr size_t kMaxBits = size_t{1} << 24;

  /// Returns the code point. U+2581 counts as the space that it stands for, which makes it ASCII.
  static uint32_t code(std::string_view text) {
    return text.starts_with(kSpaceMark) ? ' ' : code_point(text);
  }

  uint64_t bit_index(uint32_t left, uint32_t right) const {
    const uint64_t pair = uint64_t{left} << 32 | right;
    return (pair * 0x9E3779B97F4A7C15ULL >> 20) & mask_;  // 2^64 / golden ratio
  }

  bool may_join(uint32_t left, uint32_t right) const {
    if ((left | right) < 0x80) return ascii_pairs_[left << 7 | right] != 0;
    const uint64_t bit = bit_index(left, right);
    return (other_pairs_[bit / 64] >> bit % 64 & 1) != 0;
  }

  std::array<uint8_t, 128 * 128> ascii_pairs_{};  // 1 if a piece has the two as neighbours
  std::vector<uint64_t> other_pairs_;  // the same for other pairs, one bit by their hash; if two
                                       // pairs share a bit, a cut may be missed, but none is wrong
  uint64_t mask_;                      // the number of these bits minus 1
};

}  // namespace tessera
