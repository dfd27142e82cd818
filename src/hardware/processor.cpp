#include "hardware/processor.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
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

/// Sets the sizes of the first core's caches. Not by sysconf(), which counts a last-level cache
/// several times over on some virtual machines.
void set_caches(Processor& processor) {
  int deepest = 0;
  for (int index = 0;; ++index) {
    const fs::path folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}", index);
    const std::string level = first_word(folder / "level");
    const std::string size = first_word(folder / "size");  // "32768K"
    if (level.empty() || size.empty()) return;
    if (first_word(folder / "type") == "Instruction") continue;
    const int64_t bytes = parse_bytes(size.ends_with('K') ? size + "iB" : size);
    if (level == "1") processor.first_level_cache = bytes;
    if (level == "2") processor.second_level_cache = bytes;
    if (level[0] - '0' > deepest) processor.last_level_cache = bytes;
    deepest = std::max(deepest, level[0] - '0');
  }
}

}  // namespace

Processor processor_from_cpuinfo(std::string_view text, int threads) {
  Processor processor{.name = "unknown", .threads = threads};
  std::istringstream lines{std::string(text)};
  std::vector<std::string> found;
  std::string family;
  std::string model;
  for (std::string line; std::getline(lines, line) && !line.empty();) {  // the first core's lines
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = trimmed(std::string_view(line).substr(0, colon));
    const std::string value(trimmed(std::string_view(line).substr(colon + 1)));
    if (key == "model name") processor.name = value;
    if (key == "cpu family") family = value;
    if (key == "model") model = value;
    if (key == "flags" || key == "Features") {
      std::istringstream words(value);
      for (std::string word; words >> word;) found.push_back(word);
    }
  }
  // Virtual machines give several generations one name.
  if (!family.empty() && !model.empty()) {
    processor.name += fmt::format(" (family {}, model {})", family, model);
  }
  for (const std::string_view feature : kFeatures) {
    if (std::find(found.begin(), found.end(), feature) != found.end()) {
      processor.features.emplace_back(feature);
    }
  }
  return processor;
}

Processor this_processor(int threads) {
  std::ifstream file("/proc/cpuinfo");
  std::ostringstream text;
  text << file.rdbuf();
  Processor processor = processor_from_cpuinfo(text.str(), threads);
  set_caches(processor);
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
