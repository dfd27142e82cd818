#include "metrics/tensorboard/event.h"

#include <array>
#include <bit>

namespace tessera {
namespace {

/// Returns an unsigned number as bytes, the lowest first.
template <typename Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

/// Writes a message in the wire format of Protocol Buffers, with the fields in the order of the
/// calls. A field begins with a key: its number and its wire type.
class Message {
 public:
  Message& whole(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real64(int field, double value) {
    key(field, 1);
    bytes_ += little_endian(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& real32(int field, double value) {
    key(field, 5);
    bytes_ += little_endian(std::bit_cast<uint32_t>(static_cast<float>(value)));
    return *this;
  }
  /// Writes a text or an embedded message.
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& encoded() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Field numbers of event.proto and summary.proto, beside those of an event (EventField).
constexpr int kStatus = 1, kStart = 1;                 // of a SessionLog: a field and a value of it
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2;  // of a Summary and a Summary.Value

constexpr uint32_t kPolynomial = 0x82F63B78;  // of Castagnoli, bits reversed
constexpr uint32_t kMaskAddend = 0xA282EAD8;  // the constant that TFRecord adds

/// The effect of each value of a byte on the checksum.
constexpr std::array<uint32_t, 256> kChecksumOfByte = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}();

std::string masked_checksum(std::string_view bytes) {
  return little_endian<uint32_t>(std::rotr(crc32c(bytes), 15) + kMaskAddend);
}

}  // namespace

std::string version_event(double wall_time) {
  return Message()
      .real64(EventField::kWallTime, wall_time)
      .bytes(EventField::kFileVersion, "brain.Event:2")
      .encoded();
}

std::string start_event(double wall_time, int64_t first_step) {
  return Message()
      .real64(EventField::kWallTime, wall_time)
      .whole(EventField::kStep, first_step)
      .bytes(EventField::kSessionLog, Message().whole(kStatus, kStart).encoded())
      .encoded();
}

std::string summary_message(std::span<const Scalar> scalars) {
  Message values;
  for (const Scalar& scalar : scalars) {
    values.bytes(kValue,
                 Message().bytes(kTag, scalar.tag).real32(kSimpleValue, scalar.value).encoded());
  }
  return values.encoded();
}

std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  return Message()
      .real64(EventField::kWallTime, wall_time)
      .whole(EventField::kStep, step)
      .bytes(EventField::kSummary, summary_message(scalars))
      .encoded();
}

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char byte : bytes) {
    value = (value >> 8) ^ kChecksumOfByte[(value ^ static_cast<unsigned char>(byte)) & 0xFF];
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
