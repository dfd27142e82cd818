#pragma once

#include <array>
#include <string>
#include <string_view>

#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/character_map.h"
#include "data/sentencepiece/model_description.h"

namespace tessera {

/// The text from which pieces are cut: characters replaced as the model's map says, but not within
/// user-defined symbols; white space trimmed and marked as the model says.
class TextNormalizer {
 public:
  /// `symbols` are the user-defined ones; it must outlive this.
  TextNormalizer(const SentencePieceDescription& description, CharacterMap map,
                 const ByteTrie& symbols);

  /// Fills `normalized` with valid UTF-8 where the map makes such. Each byte of `text` that is part
  /// of no valid character becomes U+FFFD.
  void normalize(std::string_view text, std::string& normalized) const;

 private:
  /// What the beginning of a text becomes.
  struct Part {
    size_t length;  // of the text
    std::string_view text;
  };

  Part first_part(std::string_view text) const;
  bool begins_with_plain_space(std::string_view text) const;
  /// The length of the part at the beginning of `text` that stays as it is, found quickly.
  size_t plain_length(std::string_view text) const;
  void append(std::string_view part, std::string& normalized) const;

  const ByteTrie& symbols_;
  CharacterMap map_;
  bool adds_dummy_space_;
  bool whitespace_as_suffix_;
  bool removes_extra_whitespace_;
  bool escapes_whitespace_;
  std::string_view space_;       // as it stands in the normalised text
  bool space_is_plain_ = false;  // no rule or symbol of ASCII characters begins with a space
  std::array<bool, 256> stays_plain_{};  // other ASCII characters of which none does
};

}  // namespace tessera
