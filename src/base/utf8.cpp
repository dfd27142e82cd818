#include "base/utf8.h"

#include <algorithm>

#include <simdjson.h>

namespace tessera {

// Follows the table of well-formed sequences (Unicode 15, table 3-7).
Utf8Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range is narrower for lead bytes that could begin an overlong form, a
  // surrogate or a value above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size()) return {i, false};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {i, false};
  }
  return {length, true};
}

std::string_view repair_utf8(std::string_view text, std::string& buffer, int64_t& replaced) {
  if (simdjson::validate_utf8(text.data(), text.size())) return text;
  buffer.clear();
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    if (character.valid) {
      buffer.append(text.substr(0, character.length));
    } else {
      buffer.append("\xEF\xBF\xBD");
      ++replaced;
    }
    text.remove_prefix(character.length);
  }
  return buffer;
}

size_t next_character(std::string_view text, size_t offset) {
  // A character has at most three bytes after its first. More such bytes are broken, and each is
  // replaced alone.
  const size_t furthest = std::min(offset + kLongestCharacter - 1, text.size());
  while (offset < furthest && is_inside_character(text[offset])) ++offset;
  return std::min(offset, text.size());
}

}  // namespace tessera
