#include "base/process_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include <sys/resource.h>

#include "base/error.h"

namespace tessera {

namespace {

int64_t status_bytes(std::string_view key) {
  const std::optional<int64_t> bytes = kibibytes_line("/proc/self/status", key);
  if (bytes && *bytes > 0) return *bytes;
  throw Error(
      "/proc/self/status has no line {} N kB; the use of memory is read from there on Linux", key);
}

}  // namespace

std::optional<int64_t> kibibytes_line(const fs::path& path, std::string_view key) {
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

// getrusage() is no alternative: its ru_maxrss also counts the process before exec(), such as the
// large program that started this one.
int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

int64_t available_addresses() {
  rlimit limit{};
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > static_cast<rlim_t>(kLargest)) {
    return kLargest;
  }
  return std::max(int64_t{0}, static_cast<int64_t>(limit.rlim_cur) - status_bytes("VmSize:"));
}

}  // namespace tessera
