#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The normalisation rules of a SentencePiece model (NFKC, lower case and the like). A rule
/// replaces a character or a sequence of characters before the text is cut into pieces.
class CharacterMap {
 public:
  /// The longest rule that applies at the beginning of a text; length 0 if there is none.
  struct Match {
    size_t length = 0;
    std::string_view replacement;
    bool may_be_longer = false;  ///< with more text a longer one might apply
  };

  /// `compiled` is the field precompiled_charsmap of a model, or "" for a map without rules. The
  /// field consists of the size of a double array in bytes, the double array as the darts-clone
  /// library writes it, and the replacements, each ended by a zero byte. Throws Error naming
  /// `origin` when the field is damaged, which the SentencePiece library does not detect.
  CharacterMap(std::string_view compiled, const std::string& origin);

  bool empty() const { return units_.empty(); }

  Match find(std::string_view text) const;

  /// Returns whether a rule replaces this ASCII character alone, or a sequence that begins with it
  /// and a second ASCII character.
  bool may_replace(unsigned char ascii) const { return may_replace_[ascii]; }
  /// Returns whether every replacement is valid UTF-8.
  bool makes_valid_utf8() const;

 private:
  void check_unit(size_t index, const std::string& origin) const;
  /// Moves along `byte`: sets `unit` to the child, and `base` to the base of its children.
  bool step(uint32_t& base, char byte, uint32_t& unit) const;

  std::vector<uint32_t> units_;  // the child of the node with base b by the byte c is at b ^ c
  std::string replacements_;
  std::array<bool, 128> may_replace_{};
};

}  // namespace tessera
