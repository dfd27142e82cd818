#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// Byte-level tokenizers write each byte as one printable character, so that a vocabulary is text:
/// printable Latin-1 characters stand for their own byte, and the other 68 bytes, in order, are
/// U+0100 to U+0143. A space is thus U+0120, a newline U+010A.

/// The character of a byte, in UTF-8.
std::string symbol_of_byte(uint8_t byte);

/// The bytes that `symbols`, valid UTF-8, spells; nothing when it holds a character that stands for
/// no byte.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

}  // namespace tessera
