#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rapidcheck.h>

namespace tessera {

/// Adds a code point, no surrogate, as UTF-8.
inline void append_utf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
  } else if (code < 0x10000) {
    text += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
             static_cast<char>(0x80 | (code & 0x3F))};
  } else {
    text += {static_cast<char>(0xF0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3F)),
             static_cast<char>(0x80 | (code >> 6 & 0x3F)), static_cast<char>(0x80 | (code & 0x3F))};
  }
}

/// Valid UTF-8 with much of what tokenizers like to lose.
inline rc::Gen<std::string> any_text() {
  const auto code = rc::gen::oneOf(
      rc::gen::inRange<uint32_t>(0, 0x80), rc::gen::inRange<uint32_t>('a', 'g'),
      rc::gen::element<uint32_t>(' ', ' ', '\n', '\t', '\r', 0, 0x2581, 0x2585, 0x2047, 0xFEFF,
                                 0xFFFD, 0x301, 0x1F600, 0xA0),
      rc::gen::inRange<uint32_t>(0x80, 0xD800), rc::gen::inRange<uint32_t>(0xE000, 0x110000));
  return rc::gen::map(rc::gen::container<std::vector<uint32_t>>(code),
                      [](const std::vector<uint32_t>& codes) {
                        std::string text;
                        for (const uint32_t value : codes) append_utf8(text, value);
                        return text;
                      });
}

}  // namespace tessera
