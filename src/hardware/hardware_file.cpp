#include "hardware/hardware_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr const char* kFormat = "tessera hardware";
constexpr int64_t kVersion = 1;

constexpr const char* kPlainText = "a text of at most 200 bytes without control characters";

/// Returns true if a text may stand in reports and errors as it is.
bool is_plain_text(const nlohmann::json& json) {
  return json.is_string() && printable(json.get<std::string>()) == json.get<std::string>();
}

/// Returns the name that users give to computing in that type.
std::string precision_name(DType dtype) {
  return dtype == DType::bf16 ? "bf16" : fmt::format("fp{}", 8 * dtype_size(dtype));
}

/// The members of one JSON object. Errors say where the object stands.
class Members {
 public:
  Members(const nlohmann::json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) throw Error("{}: found no JSON object, expected one", place_);
  }
  const nlohmann::json& member(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw Error("{}: there is no \"{}\"", place_, name);
    return *found;
  }
  std::string text(const char* name) const {
    if (!is_plain_text(member(name))) wrong(name, kPlainText);
    return member(name).get<std::string>();
  }
  /// Converts a text with `convert`. Adds the place to the Error if `convert` does not know the
  /// text.
  template <typename Convert>
  auto named(const char* name, const Convert& convert) const {
    const std::string value = text(name);
    try {
      return convert(value);
    } catch (const Error& error) {
      throw Error("{}: {}", place_, error.what());
    }
  }
  int64_t whole(const char* name, int64_t least) const {
    const nlohmann::json& value = member(name);
    constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= kLargest;
    if (!fits || value.get<int64_t>() < least) {
      wrong(name, fmt::format("a whole number of at least {}", least));
    }
    return value.get<int64_t>();
  }
  double rate(const char* name) const {
    if (!member(name).is_number() || !(member(name).get<double>() > 0) ||
        !std::isfinite(member(name).get<double>())) {
      wrong(name, "a number above 0");
    }
    return member(name).get<double>();
  }
  /// Visits the elements of an array, each with its place.
  template <typename Visitor>
  void each(const char* name, const Visitor& visit) const {
    if (!member(name).is_array()) wrong(name, "an array");
    size_t index = 0;
    for (const nlohmann::json& element : member(name)) {
      visit(element, fmt::format("{}: {}[{}]", place_, name, index++));
    }
  }
  [[noreturn]] void wrong(const char* name, const std::string& expected) const {
    throw Error("{}: \"{}\" is {}, expected {}", place_, name, printable(member(name).dump()),
                expected);
  }

 private:
  const nlohmann::json& json_;
  std::string place_;
};

Processor read_processor(const nlohmann::json& json, const std::string& place) {
  const Members members(json, place);
  Processor processor{.name = members.text("name")};
  members.each("features", [&](const nlohmann::json& feature, const std::string& where) {
    if (!is_plain_text(feature)) {
      throw Error("{} is {}, expected {}", where, printable(feature.dump()), kPlainText);
    }
    processor.features.push_back(feature.get<std::string>());
  });
  processor.first_level_cache = members.whole("first_level_cache_bytes", 0);
  processor.second_level_cache = members.whole("second_level_cache_bytes", 0);
  processor.last_level_cache = members.whole("last_level_cache_bytes", 0);
  const int64_t threads = members.whole("threads", 1);
  if (threads > std::numeric_limits<int>::max()) members.wrong("threads", "a number of threads");
  processor.threads = static_cast<int>(threads);
  return processor;
}

GemmLayout known_layout(std::string_view name) {
  return known_word<GemmLayout>(name, "layout of matrix products");
}

MemoryKernel known_kernel(std::string_view name) {
  return known_word<MemoryKernel>(name, "memory loop");
}

GemmRate read_gemm(const Members& members) {
  return {.dtype = members.named("dtype", dtype_from_name),
          .layout = members.named("layout", known_layout),
          .m = members.whole("m", 1),
          .n = members.whole("n", 1),
          .k = members.whole("k", 1),
          .best = members.rate("best"),
          .median = members.rate("median")};
}

nlohmann::ordered_json gemm_json(const GemmRate& rate) {
  return {{"dtype", dtype_name(rate.dtype)},
          {"layout", word(rate.layout)},
          {"m", rate.m},
          {"n", rate.n},
          {"k", rate.k},
          {"best", rate.best},
          {"median", rate.median}};
}

/// Writes one element per line, because people read and compare these files.
std::string lines(const std::vector<nlohmann::ordered_json>& elements) {
  std::vector<std::string> texts;
  for (const auto& element : elements) texts.push_back("\n    " + element.dump());
  return fmt::format("[{}{}]", join(texts, ","), texts.empty() ? "" : "\n  ");
}

}  // namespace

double Hardware::gemm_peak(DType dtype) const {
  double of_size = 0;
  double any = 0;
  for (const GemmRate& rate : gemms) {
    if (rate.dtype != dtype || !is_plain_square(rate)) continue;
    any = std::max(any, rate.best);
    if (is_peak_square(rate)) of_size = std::max(of_size, rate.best);
  }
  if (any == 0) {
    throw Error(
        "the hardware file has no square matrix product of {}; measure them with `tessera bench "
        "all --precision {}`, or leave run.hardware out",
        dtype_name(dtype), precision_name(dtype));
  }
  return of_size > 0 ? of_size : any;
}

double Hardware::memory_bandwidth() const {
  int64_t largest = 0;
  for (const MemoryRate& rate : memory) largest = std::max(largest, rate.bytes);
  double best = 0;
  bool in_place = false;
  for (const MemoryRate& rate : memory) {
    if (rate.bytes != largest) continue;
    best = std::max(best, rate.best);
    in_place = in_place || rate.kernel == MemoryKernel::update;
  }
  if (!in_place) {
    throw Error(
        "the hardware file has no bandwidth of the loop 'update' over its largest working set; "
        "measure it with `tessera bench all`");
  }
  return best;
}

std::string hardware_json(const Hardware& hardware) {
  nlohmann::ordered_json peaks = nlohmann::ordered_json::object();
  std::vector<nlohmann::ordered_json> gemms;
  for (const GemmRate& rate : hardware.gemms) {
    gemms.push_back(gemm_json(rate));
    if (is_plain_square(rate)) {
      peaks[std::string(dtype_name(rate.dtype))] = hardware.gemm_peak(rate.dtype);
    }
  }
  std::vector<nlohmann::ordered_json> memory;
  for (const MemoryRate& rate : hardware.memory) {
    memory.push_back({{"kernel", word(rate.kernel)},
                      {"bytes", rate.bytes},
                      {"best", rate.best},
                      {"median", rate.median}});
  }
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"processor\": {},\n"
      "  \"gemm_peak\": {},\n  \"gemm\": {},\n  \"memory\": {}\n}}\n",
      kFormat, kVersion, processor_json(hardware.processor).dump(), peaks.dump(), lines(gemms),
      lines(memory));
}

Hardware parse_hardware(std::string_view text, const std::string& origin) {
  const nlohmann::json json = parse_strict_json(text, origin, 3);
  const Members members(json, origin);
  if (members.text("format") != kFormat) {
    members.wrong("format", fmt::format("\"{}\", which `tessera bench all` writes", kFormat));
  }
  if (members.whole("version", 1) != kVersion) {
    members.wrong("version", fmt::format("{}; measure again with `tessera bench all`", kVersion));
  }
  Hardware hardware;
  hardware.processor = read_processor(members.member("processor"), origin + ": processor");
  members.each("gemm", [&](const nlohmann::json& element, const std::string& place) {
    hardware.gemms.push_back(read_gemm(Members(element, place)));
  });
  members.each("memory", [&](const nlohmann::json& element, const std::string& place) {
    const Members rate(element, place);
    hardware.memory.push_back({.kernel = rate.named("kernel", known_kernel),
                               .bytes = rate.whole("bytes", 1),
                               .best = rate.rate("best"),
                               .median = rate.rate("median")});
  });
  return hardware;
}

Hardware read_hardware(const fs::path& path) {
  return parse_hardware(read_file(path), path.string());
}

void require_same_processor(const Hardware& hardware, int threads, const fs::path& path) {
  const Processor here = this_processor(threads);
  const Processor& there = hardware.processor;
  if (same_processor(there, here)) return;
  throw Error(
      "{} was measured on {}; this is {}. Measure here with `tessera bench all --threads {} "
      "--output FILE`, or leave run.hardware out",
      path.string(), describe(there), describe(here), threads);
}

}  // namespace tessera
