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

/// The number of bytes that a line of /proc/self/status gives, such as "VmHWM:  1234 kB".
int64_t status_bytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digits = line.find_first_of("0123456789");
    int64_t kibibytes = 0;
    if (digits != std::string::npos) {
      std::from_chars(line.data() + digits, line.data() + line.size(), kibibytes);
    }
    if (kibibytes > 0) return kibibytes * 1024;
  }
  throw Error(
      "/proc/self/status has no line {} N kB; the use of memory is read from there on Linux", key);
}

}  // namespace

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
