#include "data/bpe/token_spelling.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "data/sentencepiece/utf8_character.h"

namespace tessera {
namespace {

constexpr uint32_t kFirstStandIn = 0x100;  // the symbol of the first byte that is not printable
constexpr int16_t kNoByte = -1;

/// Returns whether a byte is a printable character of Latin-1 and no space or soft hyphen.
constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

/// The code point that stands for each byte.
struct ByteAlphabet {
  std::array<uint16_t, 256> code_of_byte{};
  std::array<int16_t, 0x180> byte_of_code{};  // kNoByte if a code point is no symbol

  constexpr ByteAlphabet() {
    byte_of_code.fill(kNoByte);
    uint32_t stand_in = kFirstStandIn;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code = stands_for_itself(byte) ? byte : stand_in++;
      code_of_byte[byte] = static_cast<uint16_t>(code);
      byte_of_code[code] = static_cast<int16_t>(byte);
    }
  }
};

constexpr ByteAlphabet kByteAlphabet;

/// Returns `text` with a space for each U+2581, also for those that the original text contained.
std::string without_space_marks(std::string_view text) {
  std::string result;
  for (size_t done = 0;;) {
    const size_t mark = text.find(kSpaceMark, done);
    result += text.substr(done, mark - done);
    if (mark == std::string_view::npos) return result;
    result += ' ';
    done = mark + kSpaceMark.size();
  }
}

}  // namespace

std::string symbol_of_byte(uint8_t byte) {
  const uint32_t code = kByteAlphabet.code_of_byte[byte];
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0U | code >> 6), static_cast<char>(0x80U | (code & 0x3FU))};
}

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  bytes.reserve(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) {
    uint32_t code = static_cast<unsigned char>(symbols[i]);
    if (code >= 0x80) {
      // All characters of the alphabet have at most two bytes.
      if (code >= 0xE0 || ++i == symbols.size()) return std::nullopt;
      code = (code & 0x1FU) << 6 | (static_cast<unsigned char>(symbols[i]) & 0x3FU);
    }
    if (code >= kByteAlphabet.byte_of_code.size()) return std::nullopt;
    const int16_t byte = kByteAlphabet.byte_of_code[code];
    if (byte == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

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
