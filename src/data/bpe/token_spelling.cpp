#include "data/bpe/token_spelling.h"

#include <charconv>

#include <fmt/format.h>

#include "data/bpe/byte_alphabet.h"
#include "data/bpe/space_marks.h"

namespace tessera {

std::string fallback_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> fallback_byte(std::string_view token) {
  uint8_t byte = 0;
  if (token.size() != 6) return std::nullopt;
  const auto read = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (read.ec != std::errc() || fallback_token(byte) != token) return std::nullopt;
  return byte;
}

std::optional<std::string> merged_bytes(const BpeDescription& description,
                                        const std::string& token) {
  if (!description.byte_fallback) return bytes_of_symbols(token);
  if (fallback_byte(token)) return std::nullopt;
  return token;
}

std::string text_of_token(const BpeDescription& description, const std::string& token) {
  if (!description.byte_fallback) return bytes_of_symbols(token).value_or(token);
  if (const auto byte = fallback_byte(token)) return {static_cast<char>(*byte)};
  return without_space_marks(token);
}

}  // namespace tessera
