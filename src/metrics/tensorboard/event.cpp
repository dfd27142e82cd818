#include "metrics/tensorboard/event.h"

#include <bit>
#include <string_view>

namespace tessera {
namespace {

/// Writes a message in the Protocol Buffers wire format, with the fields in the order of the calls.
/// Events need only four kinds of field.
class Message {
 public:
  Message& whole(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& real64(int field, double value) {
    key(field, 1);
    return fixed(std::bit_cast<uint64_t>(value));
  }
  Message& real32(int field, double value) {
    key(field, 5);
    return fixed(std::bit_cast<uint32_t>(static_cast<float>(value)));
  }
  /// Writes a text or an embedded message.
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field << 3 | wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <typename Bits>
  Message& fixed(Bits bits) {
    for (size_t i = 0; i < sizeof(Bits); ++i) bytes_ += static_cast<char>(bits >> (8 * i));
    return *this;
  }

  std::string bytes_;
};

// Field numbers of event.proto and summary.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1, kStart = 1;
}
namespace summary {
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2;  // the latter two in Summary.Value
}

}  // namespace

std::string version_event(double wall_time) {
  return Message()
      .real64(event::kWallTime, wall_time)
      .bytes(event::kFileVersion, "brain.Event:2")
      .text();
}

std::string start_event(double wall_time, int64_t first_step) {
  return Message()
      .real64(event::kWallTime, wall_time)
      .whole(event::kStep, first_step)
      .bytes(event::kSessionLog, Message().whole(session_log::kStatus, session_log::kStart).text())
      .text();
}

std::string summary_message(std::span<const Scalar> scalars) {
  Message values;
  for (const Scalar& scalar : scalars) {
    values.bytes(summary::kValue, Message()
                                      .bytes(summary::kTag, scalar.tag)
                                      .real32(summary::kSimpleValue, scalar.value)
                                      .text());
  }
  return values.text();
}

std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  return Message()
      .real64(event::kWallTime, wall_time)
      .whole(event::kStep, step)
      .bytes(event::kSummary, summary_message(scalars))
      .text();
}

}  // namespace tessera
