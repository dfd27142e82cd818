#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Characters, and sequences of them, with what takes their place before the text is cut into
/// pieces: the normalisation rules of a SentencePiece model (NFKC, lower case and the like).
class CharacterMap {
 public:
  /// The longest rule that applies at the beginning of a text; length 0 where none does.
  struct Match {
    size_t length = 0;
    std::string_view replacement;
    bool open = false;  ///< with more text after it a longer one might apply
  };

  /// `compiled` is the field precompiled_charsmap of a model, "" for a map without rules: the size
  /// of a double array in bytes, the double array as the darts-clone library writes it, the
  /// replacements, each ended by a zero byte. Throws Error naming `origin` when that is damaged,
  /// which the SentencePiece library does not notice.
  CharacterMap(std::string_view compiled, const std::string& origin);

  bool empty() const { return units_.empty(); }

  Match find(std::string_view text) const;

  /// Whether a rule begins with this ASCII character and needs none but ASCII characters after it.
  bool may_replace(unsigned char ascii) const { return may_replace_[ascii]; }
  /// Whether every replacement is valid UTF-8.
  bool makes_valid_utf8() const;

 private:
  void check_unit(size_t index, const std::string& origin) const;
  bool step(uint32_t& base, char byte, uint32_t& unit) const;

  std::vector<uint32_t> units_;  // a child of the node of base b, by the byte c, is at b ^ c
  std::string replacements_;
  std::array<bool, 128> may_replace_{};
};

}  // namespace tessera
