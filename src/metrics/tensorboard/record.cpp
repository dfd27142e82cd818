#include "metrics/tensorboard/record.h"

#include <array>
#include <bit>

namespace tessera {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // bits reversed
constexpr uint32_t kMask = 0xA282EAD8;

/// The effect of each value of a byte on the checksum.
constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}();

/// Returns an unsigned number as bytes, the lowest first.
template <typename Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

std::string masked_checksum(std::string_view bytes) {
  return little_endian<uint32_t>(std::rotr(crc32c(bytes), 15) + kMask);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char byte : bytes) {
    value = (value >> 8) ^ kTable[(value ^ static_cast<unsigned char>(byte)) & 0xFF];
  }
  return ~value;
}

std::string tfrecord(std::string_view payload) {
  const std::string length = little_endian<uint64_t>(payload.size());
  std::string bytes = length + masked_checksum(length);
  bytes += payload;
  return bytes + masked_checksum(payload);
}

}  // namespace tessera
