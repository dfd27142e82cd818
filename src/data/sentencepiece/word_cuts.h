#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/sentencepiece/utf8_character.h"

namespace tessera {

/// Where a text may be cut without changing its pieces: between two characters that stand beside
/// each other in no piece, so that no piece lies over the cut. The parts are called words: in text
/// with spaces they are words mostly, with the space before them.
class WordCuts {
 public:
  /// The pieces will be added one by one; `characters` is about the sum of their lengths.
  explicit WordCuts(size_t characters);

  /// No cut will be made within `piece`, valid UTF-8.
  void keep_whole(std::string_view piece);

  /// The length of the first word of `text`, valid UTF-8 and not empty; the length of the text
  /// where that is one word as far as it goes. `from`: the place of a character before which no cut
  /// lies.
  size_t first_word(std::string_view text, size_t from = 0) const {
    uint32_t left = code(text.substr(from));
    size_t end = from + character_size(text.substr(from));
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
  /// The code point; U+2581 counts as the space that it stands for, which makes it ASCII.
  static uint32_t code(std::string_view text) {
    return text.starts_with(kSpaceMark) ? ' ' : code_point(text);
  }

  uint64_t place(uint32_t left, uint32_t right) const {
    const uint64_t pair = uint64_t{left} << 32 | right;
    return (pair * 0x9E3779B97F4A7C15ULL >> 20) & mask_;
  }

  bool may_join(uint32_t left, uint32_t right) const {
    if ((left | right) < 0x80) return ascii_[left << 7 | right] != 0;
    const uint64_t bit = place(left, right);
    return (others_[bit / 64] >> bit % 64 & 1) != 0;
  }

  std::array<uint8_t, 128 * 128> ascii_{};  // whether the two stand beside each other, exactly
  std::vector<uint64_t> others_;            // bits by a hash; one too many costs a cut only
  uint64_t mask_;
};

}  // namespace tessera
