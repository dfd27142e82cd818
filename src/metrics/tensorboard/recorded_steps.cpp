#include "metrics/tensorboard/recorded_steps.h"

#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "metrics/tensorboard/events_file.h"

namespace tessera {
namespace {

/// Reads a message in the Protocol Buffers wire format from the front of a text. Missing bytes read
/// as zeros.
class EventReader {
 public:
  explicit EventReader(std::string_view bytes) : left_(bytes) {}
  bool done() const { return left_.empty(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view bytes(uint64_t count) {
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view left_;
};

/// The parts of an event of event.proto that are needed here: its step, the hash of its numbers if
/// it has any, and true if it starts a run.
struct RecordedEvent {
  int64_t step = 0;
  std::optional<uint64_t> numbers;
  bool start = false;
};

RecordedEvent parse_event(std::string_view payload) {
  RecordedEvent event;
  for (EventReader reader(payload); !reader.done();) {
    const uint64_t key = reader.varint();
    const uint64_t field = key >> 3;
    switch (key & 7) {
      case 0: {
        const uint64_t value = reader.varint();
        if (field == 2) event.step = static_cast<int64_t>(value);
        break;
      }
      case 1:
        reader.bytes(8);
        break;
      case 2: {
        const std::string_view message = reader.bytes(reader.varint());
        if (field == 5) event.numbers = hash(message);
        event.start |= field == 7;
        break;
      }
      default:
        reader.bytes(4);
    }
  }
  return event;
}

uint64_t little_endian_length(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Adds the steps of one more file, and removes those that it declares void.
void add_file(std::string_view file, std::map<int64_t, uint64_t>& steps) {
  constexpr size_t kHead = 8 + 4, kTail = 4;  // length and checksums, see tfrecord()
  while (file.size() >= kHead + kTail) {
    const uint64_t length = little_endian_length(file);
    if (length > file.size() - kHead - kTail) break;
    const RecordedEvent event = parse_event(file.substr(kHead, length));
    if (event.start) steps.erase(steps.lower_bound(event.step), steps.end());
    if (event.numbers) steps.insert_or_assign(event.step, *event.numbers);
    file.remove_prefix(kHead + length + kTail);
  }
}

}  // namespace

std::map<int64_t, uint64_t> recorded_steps(const fs::path& folder) {
  std::map<int64_t, uint64_t> steps;
  if (!path_exists(folder)) return steps;
  for (const fs::path& file : list_folder(folder)) {  // sorted, so in the order of writing
    if (!file.filename().string().starts_with(kEventsPrefix)) continue;
    add_file(read_file(file), steps);
  }
  return steps;
}

}  // namespace tessera
