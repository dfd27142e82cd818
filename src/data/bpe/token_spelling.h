#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/bpe/bpe_description.h"

namespace tessera {

/// Returns the spelling of the token of a byte of a character that has no token: "<0x0A>".
std::string fallback_token(uint8_t byte);

/// Returns the byte of a token that fallback_token() spells, or nothing if `token` is another.
std::optional<uint8_t> fallback_byte(std::string_view token);

/// Returns the bytes of the normalised text from which merges make this token. Returns nothing for
/// a token that does not come from merging: one with characters outside the byte alphabet, or with
/// byte fallback the token of a byte.
std::optional<std::string> merged_bytes(const BpeDescription& description,
                                        const std::string& token);

/// Returns the text that a token of the vocabulary stands for; with byte fallback an added token
/// too.
std::string text_of_token(const BpeDescription& description, const std::string& token);

}  // namespace tessera
