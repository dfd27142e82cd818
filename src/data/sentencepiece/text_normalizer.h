#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/character_map.h"
#include "data/sentencepiece/model_description.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {

/// The rules by which a model changes a text before the text is cut into pieces. The model's map
/// replaces characters, but not within user-defined symbols. White space is trimmed and marked.
/// NormalizedText applies the rules.
class TextNormalizer {
 public:
  /// The beginning of a text and its replacement.
  struct Part {
    size_t length;  // the length of the replaced text, in bytes
    std::string_view text;
    bool may_change;  // with more text the result might be different
  };

  /// `symbols` are the user-defined symbols. They must outlive this object.
  TextNormalizer(const SentencePieceDescription& description, CharacterMap map,
                 const ByteTrie& symbols)
      : symbols_(symbols),
        map_(std::move(map)),
        adds_dummy_space_(description.adds_dummy_space),
        whitespace_as_suffix_(description.whitespace_as_suffix),
        removes_extra_whitespace_(description.removes_extra_whitespace),
        escapes_whitespace_(description.escapes_whitespace),
        space_(escapes_whitespace_ ? kSpaceMark : " ") {
    for (unsigned char ascii = 0; ascii < 0x80; ++ascii) {
      ByteTrie::Node node = ByteTrie::kRoot;
      stays_plain_[ascii] =
          !map_.may_replace(ascii) && !symbols_.step(node, static_cast<char>(ascii));
    }
    space_is_plain_ = std::exchange(stays_plain_[' '], false);
  }

  /// Returns the beginning of `text` and its replacement: U+FFFD for a byte of no valid character.
  Part first_part(std::string_view text) const {
    const ByteTrie::Match symbol = symbols_.longest_prefix(text);
    if (symbol.length > 0)
      return {symbol.length, text.substr(0, symbol.length), symbol.may_be_longer};
    const CharacterMap::Match match = map_.find(text);
    const bool may_change = symbol.may_be_longer || match.may_be_longer;
    if (match.length > 0) return {match.length, match.replacement, may_change};
    const Utf8Character character = first_character(text);
    if (!character.valid) return {1, kReplacementCharacter, may_change};
    return {character.length, text.substr(0, character.length), may_change};
  }

  /// A fast check: if it returns true, first_part() is a space that stays one. It may miss such a
  /// space. `ends` is true if no text follows.
  bool begins_with_plain_space(std::string_view text, bool ends) const {
    if (text.front() != ' ' || !space_is_plain_) return false;
    if (map_.empty()) return true;
    return text.size() == 1 ? ends : static_cast<unsigned char>(text[1]) < 0x80;
  }

  /// A fast check: returns the length of a beginning of `text` that surely stays unchanged.
  size_t plain_length(std::string_view text, bool ends) const {
    size_t length = 0;
    while (length < text.size() && stays_plain_[static_cast<unsigned char>(text[length])]) ++length;
    if (length == 0 || map_.empty()) return length;
    // A rule may replace the last character together with one that is not ASCII.
    const bool before_others =
        length < text.size() ? static_cast<unsigned char>(text[length]) >= 0x80 : !ends;
    return before_others ? length - 1 : length;
  }

  /// Return whether a dummy space is put before the first character, or after the last.
  bool begins_with_dummy_space() const { return adds_dummy_space_ && !whitespace_as_suffix_; }
  bool ends_with_dummy_space() const { return adds_dummy_space_ && whitespace_as_suffix_; }
  bool removes_extra_whitespace() const { return removes_extra_whitespace_; }
  bool escapes_whitespace() const { return escapes_whitespace_; }
  /// Returns the spelling of a space in the normalised text.
  std::string_view space() const { return space_; }

 private:
  static constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

  const ByteTrie& symbols_;
  CharacterMap map_;
  bool adds_dummy_space_;
  bool whitespace_as_suffix_;
  bool removes_extra_whitespace_;
  bool escapes_whitespace_;
  std::string_view space_;
  bool space_is_plain_ = false;  // no rule or symbol of ASCII characters begins with a space
  std::array<bool, 256> stays_plain_{};  // the same for each other ASCII character
};

}  // namespace tessera
