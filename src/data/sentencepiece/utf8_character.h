#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// U+2581, which SentencePiece writes for a space in its pieces.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// Returns the size of the first character of `text`, which is valid UTF-8 and not empty.
inline size_t character_size(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// Returns the code point of the first character of `text`, which is valid UTF-8 and not empty.
inline uint32_t code_point(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<unsigned char>(text[i]); };
  switch (character_size(text)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

}  // namespace tessera
