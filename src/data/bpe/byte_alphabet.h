#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// Byte-level tokenizers write each byte as one printable character, so their vocabularies are
/// text. A printable Latin-1 character stands for its own byte. The other 68 bytes, in order, are
/// U+0100 to U+0143. For example, a space is U+0120 and a newline is U+010A.

/// Returns the character of a byte, in UTF-8.
std::string symbol_of_byte(uint8_t byte);

/// Returns the bytes that `symbols`, valid UTF-8, spells. Returns nothing if a character stands for
/// no byte.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

}  // namespace tessera
