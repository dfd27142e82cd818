#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr size_t kLongestCharacter = 4;  ///< bytes of UTF-8

/// The first character of a text.
struct Utf8Character {
  size_t length;  ///< bytes of the character, or of its maximal valid start if it is broken
  bool valid;
};

/// Returns the first character of `text`, which must not be empty.
Utf8Character first_character(std::string_view text);

/// Returns whether a byte of valid UTF-8 belongs to a character that began before it.
inline bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

/// Returns `text` itself if it is valid UTF-8. Otherwise returns `buffer`, filled with the text in
/// which U+FFFD replaces each maximal broken part (Unicode's "substitution of maximal subparts").
/// Adds the number of replacements to `replaced`.
std::string_view repair_utf8(std::string_view text, std::string& buffer, int64_t& replaced);

/// Returns the offset at which the character that contains the byte at `offset` begins.
/// `text` must be valid UTF-8.
inline size_t character_begin(std::string_view text, size_t offset) {
  while (offset > 0 && is_inside_character(text[offset])) --offset;
  return offset;
}

/// Returns the first offset from `offset` on that is not inside a character, valid or broken: at
/// most 3 bytes further, and at most the end of the text. The parts before and after that offset
/// can be repaired separately, with the same result as for the whole text.
size_t next_character(std::string_view text, size_t offset);

}  // namespace tessera
