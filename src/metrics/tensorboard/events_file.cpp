// EventsFile appends records to a new file. recorded_steps() reads the records of all files back.

#include "metrics/tensorboard/events_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/hash.h"

namespace tessera {
namespace {

/// The beginning of the names of event files. The seconds since 1970 follow, in ten digits.
constexpr std::string_view kEventsPrefix = "events.out.tfevents.";

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Returns the seconds since 1970 in the newest file's name; 0 if there is no file.
int64_t newest_time(const fs::path& folder) {
  int64_t newest = 0;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kEventsPrefix)) continue;
    int64_t time = 0;
    std::from_chars(name.data() + kEventsPrefix.size(), name.data() + name.size(), time);
    newest = std::max(newest, time);
  }
  return newest;
}

/// Makes the folder if it is missing, and returns the path of a new file in it.
fs::path new_events_file(const fs::path& folder) {
  ensure_directory(folder);
  sync_directory(folder.has_parent_path() ? folder.parent_path() : fs::path("."));
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  // The time is later than the time of every other file, even if the clock was set back or the last
  // run ended within this second.
  const int64_t time = std::max(static_cast<int64_t>(wall_time()), newest_time(folder) + 1);
  return folder / fmt::format("{}{:010}.{}.{}", kEventsPrefix, time, host.data(), ::getpid());
}

/// Reads a message in the wire format of Protocol Buffers from its front. Missing bytes read as
/// zeros.
class EventReader {
 public:
  explicit EventReader(std::string_view bytes) : unread_(bytes) {}
  bool at_end() const { return unread_.empty(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !unread_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(unread_.front());
      unread_.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view bytes(uint64_t count) {
    const std::string_view result = unread_.substr(0, count);
    unread_.remove_prefix(result.size());
    return result;
  }

 private:
  std::string_view unread_;
};

struct RecordedEvent {
  int64_t step = 0;
  std::optional<uint64_t> numbers_hash;  ///< none if the event holds no numbers
  bool starts_run = false;               ///< see start_event()
};

RecordedEvent parse_event(std::string_view payload) {
  RecordedEvent event;
  for (EventReader reader(payload); !reader.at_end();) {
    const uint64_t key = reader.varint();
    const uint64_t field = key >> 3;
    switch (key & 7) {  // the wire type
      case 0: {
        const uint64_t value = reader.varint();
        if (field == EventField::kStep) event.step = static_cast<int64_t>(value);
        break;
      }
      case 1:  // 64 bits
        reader.bytes(8);
        break;
      case 2: {  // a text or a message, after its length
        const std::string_view message = reader.bytes(reader.varint());
        if (field == EventField::kSummary) event.numbers_hash = hash(message);
        event.starts_run |= field == EventField::kSessionLog;
        break;
      }
      default:  // 32 bits
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

/// Adds the steps of one more file, and removes the steps that the file declares void.
void add_steps_of(std::string_view file, std::map<int64_t, uint64_t>& steps) {
  constexpr size_t kHead = 8 + 4, kTail = 4;  // length and checksums, see tfrecord()
  while (file.size() >= kHead + kTail) {
    const uint64_t length = little_endian_length(file);
    if (length > file.size() - kHead - kTail) break;
    const RecordedEvent event = parse_event(file.substr(kHead, length));
    if (event.starts_run) steps.erase(steps.lower_bound(event.step), steps.end());
    if (event.numbers_hash) steps.insert_or_assign(event.step, *event.numbers_hash);
    file.remove_prefix(kHead + length + kTail);
  }
}

}  // namespace

EventsFile::EventsFile(const fs::path& folder, int64_t first_step)
    : file_(new_events_file(folder)) {
  const double now = wall_time();
  file_.append(tfrecord(version_event(now)) + tfrecord(start_event(now, first_step)));
}

void EventsFile::append(int64_t step, std::span<const Scalar> scalars) {
  file_.append(tfrecord(scalars_event(wall_time(), step, scalars)));
}

std::map<int64_t, uint64_t> recorded_steps(const fs::path& folder) {
  std::map<int64_t, uint64_t> steps;
  if (!path_exists(folder)) return steps;
  for (const fs::path& file : list_folder(folder)) {  // sorted, so in the order of writing
    if (!file.filename().string().starts_with(kEventsPrefix)) continue;
    add_steps_of(read_file(file), steps);
  }
  return steps;
}

}  // namespace tessera
