#include "hardware/processor.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tessera {
namespace {

/// Of x86 and of Arm, in the order in which they are listed.
constexpr std::array<std::string_view, 19> kFeatures{
    "avx2",        "fma",      "avx_vnni", "avx512f",  "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16", "asimd",       "asimdhp",
    "bf16",        "i8mm",     "sve",      "sve2",     "sme"};

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

/// How many caches of that index the machine has: the sets of processors that share one.
int64_t count_caches(const fs::path& folder, int index) {
  std::set<std::string> sharers;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path list = entry.path() / fmt::format("cache/index{}", index) / "shared_cpu_list";
    if (fs::exists(list)) sharers.insert(first_word(list));
  }
  return std::max<int64_t>(1, std::ssize(sharers));
}

/// What /proc/cpuinfo says of one core, by key.
using CoreFacts = std::map<std::string, std::string, std::less<>>;

/// The name of a processor that has none, on Arm.
std::string name_from_facts(const CoreFacts& facts) {
  const auto fact = [&](const char* key) {
    const auto found = facts.find(key);
    return found == facts.end() ? "unknown" : found->second;
  };
  if (!facts.contains("CPU part")) return "unknown";
  return fmt::format("CPU implementer {}, part {}, variant {}", fact("CPU implementer"),
                     fact("CPU part"), fact("CPU variant"));
}

}  // namespace

void set_caches(Processor& processor, const fs::path& folder) {
  // Not by sysconf(), which counts a last-level cache several times over on some virtual machines.
  int deepest = 0;
  for (int index = 0;; ++index) {
    const fs::path cache = folder / fmt::format("cpu0/cache/index{}", index);
    const std::string level = first_word(cache / "level");
    const std::string size = first_word(cache / "size");  // "32768K"
    if (level.empty() || size.empty()) return;
    if (first_word(cache / "type") == "Instruction") continue;
    const int64_t bytes = parse_bytes(size.ends_with('K') ? size + "iB" : size);
    if (level == "1") processor.first_level_cache = bytes;
    if (level == "2") processor.second_level_cache = bytes;
    if (level[0] - '0' > deepest) processor.last_level_cache = bytes * count_caches(folder, index);
    deepest = std::max(deepest, level[0] - '0');
  }
}

Processor processor_from_cpuinfo(std::string_view text, int threads) {
  std::istringstream lines{std::string(text)};
  CoreFacts facts;
  for (std::string line; std::getline(lines, line) && !line.empty();) {  // the first core's lines
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    facts.emplace(trimmed(std::string_view(line).substr(0, colon)),
                  trimmed(std::string_view(line).substr(colon + 1)));
  }
  const auto name = facts.find("model name");
  Processor processor{.name = name == facts.end() ? name_from_facts(facts) : name->second,
                      .threads = threads};
  // Virtual machines give several generations one name.
  if (facts.contains("cpu family") && facts.contains("model")) {
    processor.name += fmt::format(" (family {}, model {})", facts["cpu family"], facts["model"]);
  }
  std::set<std::string> found;
  for (const char* key : {"flags", "Features"}) {
    std::istringstream words(facts[key]);
    for (std::string word; words >> word;) found.insert(word);
  }
  for (const std::string_view feature : kFeatures) {
    if (found.contains(std::string(feature))) processor.features.emplace_back(feature);
  }
  return processor;
}

Processor this_processor(int threads) {
  std::ifstream file("/proc/cpuinfo");
  std::ostringstream text;
  text << file.rdbuf();
  Processor processor = processor_from_cpuinfo(text.str(), threads);
  set_caches(processor, "/sys/devices/system/cpu");
  return processor;
}

std::string describe(const Processor& processor) {
  return fmt::format("{}, {} thread{} ({})", processor.name, processor.threads,
                     processor.threads == 1 ? "" : "s", join(processor.features, " "));
}

bool same_processor(const Processor& a, const Processor& b) {
  return a.name == b.name && a.features == b.features && a.threads == b.threads;
}

nlohmann::ordered_json processor_json(const Processor& processor) {
  return {{"name", processor.name},
          {"features", processor.features},
          {"threads", processor.threads},
          {"first_level_cache_bytes", processor.first_level_cache},
          {"second_level_cache_bytes", processor.second_level_cache},
          {"last_level_cache_bytes", processor.last_level_cache}};
}

}  // namespace tessera
