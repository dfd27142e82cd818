#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/bpe/bpe_description.h"

namespace tessera {

// The vocabulary of a tokenizer.json spells the bytes of its tokens in one of two ways:
//
//   - A byte-level encoding writes each byte as one symbol, a printable character. A printable
//     Latin-1 character, other than a space or soft hyphen, stands for its own byte. The other 68
//     bytes, in order, are U+0100 to U+0143. A space is U+0120 and a newline is U+010A.
//   - An encoding with byte fallback writes text, with U+2581 for a space. A character that has no
//     token becomes one token per byte, such as <0x0A>.

/// Returns the symbol of a byte, in UTF-8.
std::string symbol_of_byte(uint8_t byte);

/// Returns the bytes that `symbols`, valid UTF-8, spells; nothing if a character is no symbol.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

/// Returns the token of a byte with byte fallback: "<0x0A>".
std::string fallback_token(uint8_t byte);

/// Returns the byte for which fallback_token() gives `token`, or nothing if there is none.
std::optional<uint8_t> fallback_byte(std::string_view token);

/// Returns the bytes of the normalised text from which merges make this token. Returns nothing for
/// a token that does not come from merging: one with characters that are no symbols, or with byte
/// fallback the token of a byte.
std::optional<std::string> merged_bytes(const BpeDescription& description,
                                        const std::string& token);

/// Returns the text of a token of the vocabulary or, with byte fallback, of an added token.
std::string text_of_token(const BpeDescription& description, const std::string& token);

}  // namespace tessera
