#include "metrics/tensorboard/events_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

#include <fmt/format.h>
#include <unistd.h>

#include "metrics/tensorboard/record.h"

namespace tessera {
namespace {

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

fs::path new_file(const fs::path& folder) {
  ensure_directory(folder);
  sync_directory(folder.has_parent_path() ? folder.parent_path() : fs::path("."));
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  // The time is later than that of every existing file, even if the clock was set back or the last
  // run ended within this second.
  const int64_t time = std::max(static_cast<int64_t>(wall_time()), newest_time(folder) + 1);
  return folder / fmt::format("{}{:010}.{}.{}", kEventsPrefix, time, host.data(), ::getpid());
}

}  // namespace

EventsFile::EventsFile(const fs::path& folder, int64_t first_step) : file_(new_file(folder)) {
  const double now = wall_time();
  file_.append(tfrecord(version_event(now)) + tfrecord(start_event(now, first_step)));
}

void EventsFile::append(int64_t step, std::span<const Scalar> scalars) {
  file_.append(tfrecord(scalars_event(wall_time(), step, scalars)));
}

}  // namespace tessera
