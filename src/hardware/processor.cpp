#include "hardware/processor.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/cache_sizes.h"
#include "base/text.h"

namespace tessera {
namespace {

/// The known features of x86 and of Arm, in the order in which a Processor lists them.
constexpr std::array<std::string_view, 19> kFeatures{
    "avx2",        "fma",      "avx_vnni", "avx512f",  "avx512bw", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16", "asimd",       "asimdhp",
    "bf16",        "i8mm",     "sve",      "sve2",     "sme"};

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// The entries of /proc/cpuinfo for one core, by key.
using CoreFacts = std::map<std::string, std::string, std::less<>>;

/// Returns a name for a processor that has none, as on Arm.
std::string name_from_facts(const CoreFacts& facts) {
  const auto fact = [&](const char* key) {
    const auto found = facts.find(key);
    return found == facts.end() ? "unknown" : found->second;
  };
  if (!facts.contains("CPU part")) return "unknown";
  return fmt::format("CPU implementer {}, part {}, variant {}", fact("CPU implementer"),
                     fact("CPU part"), fact("CPU variant"));
}

/// Returns the most capable instructions that oneDNN uses among the processor's features.
MatrixInstructions instructions_of(const Processor& processor) {
  const auto has = [&](std::initializer_list<std::string_view> features) {
    return std::ranges::all_of(features, [&](std::string_view feature) {
      return std::ranges::find(processor.features, feature) != processor.features.end();
    });
  };
  // "avx512bw" stands for everything that servers since Skylake have. The first processors with
  // AVX-512 lack it, and products do not use their AVX-512.
  if (!has({"avx512f", "avx512bw"})) return MatrixInstructions::avx2;
  if (!has({"avx512_bf16"})) return MatrixInstructions::avx512;
  if (has({"amx_tile", "amx_int8", "amx_bf16"})) return MatrixInstructions::amx;
  // A virtual machine without AMX, on one of Intel's processors that have it (host_instructions()).
  const bool intel = processor.name.find("Intel") != std::string::npos;
  if (intel && has({"avx512_fp16"})) return MatrixInstructions::avx512;
  return MatrixInstructions::avx512_bf16;
}

}  // namespace

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
  // Virtual machines give several generations the same name.
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
  const CacheSizes caches = cache_sizes();
  processor.first_level_cache = caches.first_level;
  processor.second_level_cache = caches.second_level;
  processor.last_level_cache = caches.last_level;
  return processor;
}

std::string describe(const Processor& processor) {
  return fmt::format("{}, {} thread{} ({})", processor.name, processor.threads,
                     processor.threads == 1 ? "" : "s", join(processor.features, " "));
}

bool same_processor(const Processor& first, const Processor& second) {
  return first.name == second.name && first.features == second.features &&
         first.threads == second.threads;
}

nlohmann::ordered_json processor_json(const Processor& processor) {
  return {{"name", processor.name},
          {"features", processor.features},
          {"threads", processor.threads},
          {"first_level_cache_bytes", processor.first_level_cache},
          {"second_level_cache_bytes", processor.second_level_cache},
          {"last_level_cache_bytes", processor.last_level_cache}};
}

Target target_of(const Processor& processor) {
  return {.threads = processor.threads,
          .instructions = instructions_of(processor),
          .caches = {.first_level = processor.first_level_cache,
                     .second_level = processor.second_level_cache,
                     .last_level = processor.last_level_cache}};
}

}  // namespace tessera
