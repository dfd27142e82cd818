#include "data/bpe/byte_alphabet.h"

#include <array>

namespace tessera {
namespace {

constexpr uint32_t kFirstStandIn = 0x100;
constexpr int16_t kNoByte = -1;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<uint16_t, 256> code_of_byte{};
  std::array<int16_t, 0x180> byte_of_code{};

  constexpr Alphabet() {
    byte_of_code.fill(kNoByte);
    uint32_t stand_in = kFirstStandIn;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code = stands_for_itself(byte) ? byte : stand_in++;
      code_of_byte[byte] = static_cast<uint16_t>(code);
      byte_of_code[code] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string symbol_of_byte(uint8_t byte) {
  const uint32_t code = kAlphabet.code_of_byte[byte];
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
    if (code >= kAlphabet.byte_of_code.size()) return std::nullopt;
    const int16_t byte = kAlphabet.byte_of_code[code];
    if (byte == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace tessera
