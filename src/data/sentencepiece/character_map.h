#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentencepiece/byte_trie.h"

namespace tessera {

/// Characters, and sequences of them, with what takes their place before the text is cut into
/// pieces: the normalisation rules of a SentencePiece model (NFKC, lower case and the like).
class CharacterMap {
 public:
  /// The longest rule that applies at the beginning of a text; length 0 where none does.
  struct Match {
    size_t length = 0;
    std::string_view replacement;
  };

  /// `compiled` is the field precompiled_charsmap of a model, "" for a map without rules: the size
  /// of a double array, the double array of the darts-clone library, the replacements. Throws Error
  /// naming `origin` when that is damaged.
  CharacterMap(std::string_view compiled, const std::string& origin);

  bool empty() const { return trie_->empty(); }

  Match find(std::string_view text) const {
    const ByteTrie::Match match = trie_->longest_prefix(text);
    if (match.length == 0) return {};
    return {match.length, replacements_[static_cast<size_t>(match.value)]};
  }

  /// Whether a rule begins with this ASCII character and needs none but ASCII characters after it.
  bool may_replace(unsigned char ascii) const { return may_replace_[ascii]; }
  /// Whether every replacement is valid UTF-8.
  bool makes_valid_utf8() const;

 private:
  std::unique_ptr<ByteTrie> trie_;
  std::vector<std::string> replacements_;
  std::array<bool, 128> may_replace_{};
};

}  // namespace tessera
