#include "metrics/tensorboard/recorded_steps.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/tensorboard/events_file.h"

namespace tessera {
namespace {

/// Takes the parts of a message in the Protocol Buffers wire format from the front of a text.
/// Missing bytes read as zeros.
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
  void skip(uint64_t bytes) { left_.remove_prefix(std::min<uint64_t>(bytes, left_.size())); }

 private:
  std::string_view left_;
};

/// The parts of an event of event.proto that are needed here: its step, and whether it holds
/// numbers or starts a run.
struct RecordedEvent {
  int64_t step = 0;
  bool scalars = false;
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
        reader.skip(8);
        break;
      case 2:
        event.scalars |= field == 5;
        event.start |= field == 7;
        reader.skip(reader.varint());
        break;
      default:
        reader.skip(4);
    }
  }
  return event;
}

uint64_t little_endian_length(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Returns the last step after one more file. It was `last` before that file.
int64_t last_after(int64_t last, std::string_view file) {
  constexpr size_t kHead = 8 + 4, kTail = 4;  // length and checksums, see tfrecord()
  while (file.size() >= kHead + kTail) {
    const uint64_t length = little_endian_length(file);
    if (length > file.size() - kHead - kTail) break;
    const RecordedEvent event = parse_event(file.substr(kHead, length));
    if (event.start) last = std::min(last, event.step - 1);
    if (event.scalars) last = std::max(last, event.step);
    file.remove_prefix(kHead + length + kTail);
  }
  return last;
}

}  // namespace

int64_t last_recorded_step(const fs::path& folder) {
  if (!path_exists(folder)) return 0;
  int64_t last = 0;
  for (const fs::path& file : list_folder(folder)) {  // sorted, so in the order of writing
    if (!file.filename().string().starts_with(kEventsPrefix)) continue;
    last = last_after(last, read_file(file));
  }
  return std::max<int64_t>(last, 0);
}

}  // namespace tessera
