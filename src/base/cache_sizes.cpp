#include "base/cache_sizes.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

/// Returns the first word of a file; empty if the file cannot be read.
std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

/// Returns the number of caches that the machine has under this index in its processors' folders.
/// All processors that share a cache state the same list of sharers.
int64_t count_caches(const fs::path& folder, int index) {
  std::set<std::string> sharers;
  for (const fs::path& processor : list_folder(folder)) {
    const fs::path list = processor / fmt::format("cache/index{}", index) / "shared_cpu_list";
    if (path_exists(list)) sharers.insert(first_word(list));
  }
  return std::max<int64_t>(1, std::ssize(sharers));
}

}  // namespace

CacheSizes cache_sizes(const fs::path& folder) {
  // sysconf() is no alternative. On some virtual machines it counts a last-level cache several
  // times, and where cores differ it answers for whichever core it runs on.
  CacheSizes sizes;
  int last_level = 0;
  for (int index = 0;; ++index) {
    const fs::path cache = folder / fmt::format("cpu0/cache/index{}", index);
    const std::string level = first_word(cache / "level");
    const std::string size = first_word(cache / "size");  // "32768K", in KiB
    if (level.empty() || size.empty()) return sizes;
    if (first_word(cache / "type") == "Instruction") continue;
    const int64_t bytes = parse_bytes(size.ends_with('K') ? size + "iB" : size);
    if (level == "1") sizes.first_level = bytes;
    if (level == "2") sizes.second_level = bytes;
    if (level[0] - '0' > last_level) {
      last_level = level[0] - '0';
      sizes.last_level = bytes * count_caches(folder, index);
    }
  }
}

}  // namespace tessera
