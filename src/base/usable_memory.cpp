#include "base/usable_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// Returns the bytes in the line of a system's file that begins with `key`, such as
/// "MemTotal:  1234 kB"; null if there is no such line.
std::optional<int64_t> bytes_of_line(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digits = line.find_first_of("0123456789");
    int64_t kibibytes = 0;
    if (digits == std::string::npos) return std::nullopt;
    std::from_chars(line.data() + digits, line.data() + line.size(), kibibytes);
    return kibibytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::string UsableMemory::text() const {
  if (limited_by.empty()) return fmt::format("this machine has {}", format_bytes(bytes));
  return fmt::format("this process's control group may have {} ({})", format_bytes(bytes),
                     limited_by);
}

UsableMemory usable_memory(const fs::path& root) {
  const auto machine = bytes_of_line(root / "proc/meminfo", "MemTotal:");
  UsableMemory memory{
      .bytes = machine ? *machine : ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE),
      .limited_by = {}};
  const auto group = memory_of_control_groups(root);
  if (group && group->value < memory.bytes) memory = {group->value, group->file};
  return memory;
}

int64_t available_memory(const fs::path& root) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  return std::min(bytes_of_line(root / "proc/meminfo", "MemAvailable:").value_or(kUnknown),
                  free_memory_of_control_groups(root).value_or(kUnknown));
}

int64_t peak_resident_bytes() {
  // getrusage() is no alternative: its ru_maxrss also counts the process before exec(), such as the
  // large program that started this one.
  constexpr std::string_view kPeak = "VmHWM:";
  const std::optional<int64_t> bytes = bytes_of_line("/proc/self/status", kPeak);
  if (bytes && *bytes > 0) return *bytes;
  throw Error(
      "/proc/self/status has no line {} N kB; the use of memory is read from there on Linux",
      kPeak);
}

}  // namespace tessera
