#include "data/sentencepiece/text_normalizer.h"

#include <utility>

#include "base/utf8.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace

TextNormalizer::TextNormalizer(const SentencePieceDescription& description, CharacterMap map,
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

TextNormalizer::Part TextNormalizer::first_part(std::string_view text) const {
  const ByteTrie::Match symbol = symbols_.longest_prefix(text);
  if (symbol.length > 0) return {symbol.length, text.substr(0, symbol.length), symbol.open};
  const CharacterMap::Match match = map_.find(text);
  const bool open = symbol.open || match.open;
  if (match.length > 0) return {match.length, match.replacement, open};
  const Utf8Character character = first_character(text);
  if (!character.valid) return {1, kReplacementCharacter, open};
  return {character.length, text.substr(0, character.length), open};
}

}  // namespace tessera
