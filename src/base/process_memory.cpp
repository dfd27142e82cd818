#include "base/process_memory.h"

#include <charconv>
#include <fstream>
#include <string>

#include "base/error.h"

namespace tessera {

int64_t peak_resident_bytes() {
  // Not getrusage(), whose ru_maxrss also counts what the process was before exec(), such as the
  // large program that started this one.
  constexpr std::string_view kKey = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kKey)) continue;
    const size_t digits = line.find_first_of("0123456789");
    int64_t kibibytes = 0;
    if (digits != std::string::npos) {
      std::from_chars(line.data() + digits, line.data() + line.size(), kibibytes);
    }
    if (kibibytes > 0) return kibibytes * 1024;
  }
  throw Error("/proc/self/status has no line {} N kB; peak memory is read from there on Linux",
              kKey);
}

}  // namespace tessera
