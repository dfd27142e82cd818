#include "data/sentencepiece/text_normalizer.h"

#include <utility>

#include "data/corpus/utf8.h"
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
  if (const size_t length = symbols_.longest_prefix(text).length; length > 0) {
    return {length, text.substr(0, length)};
  }
  if (const CharacterMap::Match match = map_.find(text); match.length > 0) {
    return {match.length, match.replacement};
  }
  const Utf8Character character = first_character(text);
  if (!character.valid) return {1, kReplacementCharacter};
  return {character.length, text.substr(0, character.length)};
}

bool TextNormalizer::begins_with_plain_space(std::string_view text) const {
  return text.front() == ' ' && space_is_plain_ &&
         (map_.empty() || text.size() == 1 || static_cast<unsigned char>(text[1]) < 0x80);
}

size_t TextNormalizer::plain_length(std::string_view text) const {
  size_t length = 0;
  while (length < text.size() && stays_plain_[static_cast<unsigned char>(text[length])]) ++length;
  // A rule may replace the last one together with a character that is not ASCII.
  const bool before_others =
      length < text.size() && static_cast<unsigned char>(text[length]) >= 0x80;
  if (length > 0 && before_others && !map_.empty()) --length;
  return length;
}

void TextNormalizer::append(std::string_view part, std::string& normalized) const {
  if (!escapes_whitespace_) {
    normalized += part;
    return;
  }
  for (size_t space = part.find(' '); space != std::string_view::npos; space = part.find(' ')) {
    normalized += part.substr(0, space);
    normalized += kSpaceMark;
    part.remove_prefix(space + 1);
  }
  normalized += part;
}

void TextNormalizer::normalize(std::string_view text, std::string& normalized) const {
  normalized.clear();
  bool after_space = false;  // of which no other may follow
  if (removes_extra_whitespace_) {
    while (!text.empty()) {
      const Part part = first_part(text);
      if (part.text != " ") break;
      text.remove_prefix(part.length);
    }
    after_space = true;
  }
  if (text.empty()) return;
  if (adds_dummy_space_ && !whitespace_as_suffix_) normalized += space_;
  while (!text.empty()) {
    if (const size_t length = plain_length(text); length > 0) {
      normalized += text.substr(0, length);
      text.remove_prefix(length);
      after_space = false;
      continue;
    }
    if (begins_with_plain_space(text)) {
      if (!after_space) normalized += space_;
      after_space = removes_extra_whitespace_;
      text.remove_prefix(1);
      continue;
    }
    Part part = first_part(text);
    text.remove_prefix(part.length);
    while (after_space && part.text.starts_with(' ')) part.text.remove_prefix(1);
    if (part.text.empty()) continue;
    append(part.text, normalized);
    after_space = removes_extra_whitespace_ && part.text.ends_with(' ');
  }
  while (removes_extra_whitespace_ && normalized.ends_with(space_)) {
    normalized.resize(normalized.size() - space_.size());
  }
  if (adds_dummy_space_ && whitespace_as_suffix_) normalized += space_;
}

}  // namespace tessera
