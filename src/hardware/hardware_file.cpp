// This file first reads and writes the entries of a hardware file. Then come the peaks that follow
// from them (the methods of Hardware), the whole file, and the checks that a file fits the machine.

#include "hardware/hardware_file.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "hardware/json_members.h"

namespace tessera {
namespace {

constexpr const char* kFormat = "tessera hardware";
constexpr int64_t kVersion = 1;             // of files about a processor
constexpr int64_t kAcceleratorVersion = 2;  // of files about an accelerator

/// Returns the name that users give to computing in that type.
std::string precision_name(DType dtype) {
  return dtype == DType::bf16 ? "bf16" : fmt::format("fp{}", 8 * dtype_size(dtype));
}

Processor read_processor(const nlohmann::json& json, const std::string& path) {
  const JsonMembers members(json, path);
  members.require_known({"name", "features", "first_level_cache_bytes", "second_level_cache_bytes",
                         "last_level_cache_bytes", "threads"});
  Processor processor{.name = members.text("name")};
  members.for_each("features", [&](const nlohmann::json& feature, const std::string& where) {
    if (!is_plain_text(feature)) {
      throw Error("{} is {}, expected {}", where, printable(feature.dump()),
                  JsonMembers::kPlainText);
    }
    processor.features.push_back(feature.get<std::string>());
  });
  processor.first_level_cache = members.whole("first_level_cache_bytes", 0);
  processor.second_level_cache = members.whole("second_level_cache_bytes", 0);
  processor.last_level_cache = members.whole("last_level_cache_bytes", 0);
  processor.threads = members.whole_int("threads", 1);
  return processor;
}

GemmRate read_gemm(const JsonMembers& members) {
  members.require_known({"dtype", "layout", "m", "n", "k", "best", "median"});
  return {.dtype = members.converted("dtype", dtype_from_name),
          .layout = members.word_of<GemmLayout>("layout", "layout of matrix products"),
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

double read_seconds(const JsonMembers& members, const char* name) {
  constexpr double kMostSeconds = 1e9;  // about 30 years: no measurement takes as long
  const nlohmann::json& value = members.member(name);
  if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > kMostSeconds) {
    members.refuse(name, "seconds above 0");
  }
  return value.get<double>();
}

CollectiveRate read_collective(const JsonMembers& members) {
  members.require_known({"collective", "dtype", "carrier", "ranks", "machines", "bytes", "best",
                         "median", "bus_bandwidth"});
  return {.collective = members.word_of<Collective>("collective", "collective"),
          .dtype = members.converted("dtype", dtype_from_name),
          .ranks = {.kind = members.word_of<RankKind>("carrier", "carrier of messages"),
                    .count = members.whole_int("ranks", 2),
                    .machines = members.whole_int("machines", 1)},
          .bytes = members.whole("bytes", 1),
          .best_seconds = read_seconds(members, "best"),
          .median_seconds = read_seconds(members, "median")};
}

/// Returns a JSON array with one element a line, because people read and compare these files.
std::string array_lines(const std::vector<nlohmann::ordered_json>& elements) {
  std::vector<std::string> texts;
  for (const auto& element : elements) texts.push_back("\n    " + element.dump());
  return fmt::format("[{}{}]", join(texts, ","), texts.empty() ? "" : "\n  ");
}

std::string collective_lines(const std::vector<CollectiveRate>& rates) {
  std::vector<nlohmann::ordered_json> elements;
  for (const CollectiveRate& rate : rates) {
    elements.push_back({{"collective", word(rate.collective)},
                        {"dtype", dtype_name(rate.dtype)},
                        {"carrier", word(rate.ranks.kind)},
                        {"ranks", rate.ranks.count},
                        {"machines", rate.ranks.machines},
                        {"bytes", rate.bytes},
                        {"best", rate.best_seconds},
                        {"median", rate.median_seconds},
                        {"bus_bandwidth", rate.bus_bandwidth()}});
  }
  return array_lines(elements);
}

}  // namespace

double Hardware::gemm_peak(DType dtype) const {
  double peak = 0;
  double best_square = 0;
  for (const GemmRate& rate : gemms) {
    if (rate.dtype != dtype || !is_plain_square(rate)) continue;
    best_square = std::max(best_square, rate.best);
    if (is_peak_square(rate)) peak = std::max(peak, rate.best);
  }
  if (best_square == 0 && accelerator) {
    const auto found = std::ranges::find(accelerator->peaks, dtype, &PeakRate::dtype);
    if (found != accelerator->peaks.end()) return found->flops.value;
  }
  if (best_square == 0) {
    throw Error(
        "the hardware file has no square matrix product of {}; measure them with `tessera bench "
        "all --precision {}`, or leave the file out",
        dtype_name(dtype), precision_name(dtype));
  }
  // An accelerator reaches its peak in larger squares than a processor.
  return peak > 0 && !accelerator ? peak : best_square;
}

double Hardware::tf32_peak() const {
  if (accelerator && accelerator->tf32_flops) return accelerator->tf32_flops->value;
  throw Error(
      "the hardware file has no peak of products in TF32 (its accelerator's member tf32_flops): "
      "use a file from a data sheet, or set train.tf32 = false");
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
  if (accelerator && best > 0) return best;  // its copy uses the full memory bandwidth
  if (accelerator && accelerator->memory_bandwidth) return accelerator->memory_bandwidth->value;
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
  std::string machine;
  if (!hardware.processor.name.empty() || !hardware.accelerator) {
    machine = fmt::format("  \"processor\": {},\n", processor_json(hardware.processor).dump());
  }
  if (hardware.accelerator) {
    machine +=
        fmt::format("  \"accelerator\": {},\n", accelerator_json(*hardware.accelerator).dump());
  }
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n{}"
      "  \"gemm_peak\": {},\n  \"gemm\": {},\n  \"memory\": {}{}\n}}\n",
      kFormat, hardware.accelerator ? kAcceleratorVersion : kVersion, machine, peaks.dump(),
      array_lines(gemms), array_lines(memory),
      hardware.collectives.empty()
          ? ""
          : ",\n  \"collectives\": " + collective_lines(hardware.collectives));
}

std::string collectives_json(const std::vector<CollectiveRate>& rates) {
  return collective_lines(rates) + "\n";
}

Hardware parse_hardware(std::string_view text, const std::string& origin) {
  constexpr int kLevels = 5;  // of nesting in a file
  const nlohmann::json json = parse_strict_json(text, origin, kLevels);
  const JsonMembers members(json, origin);
  if (members.text("format") != kFormat) {
    members.refuse("format", fmt::format("\"{}\", which `tessera bench all` writes", kFormat));
  }
  const int64_t version = members.whole("version", 1);
  if (version != kVersion && version != kAcceleratorVersion) {
    members.refuse("version", fmt::format("{} or {}; measure again with `tessera bench all`",
                                          kVersion, kAcceleratorVersion));
  }
  members.require_known({"format", "version", "processor", "accelerator", "gemm_peak", "gemm",
                         "memory", "collectives"});
  Hardware hardware;
  if (version == kAcceleratorVersion) {
    hardware.accelerator =
        parse_accelerator(members.member("accelerator"), origin + ": accelerator");
  }
  // A data sheet does not describe the processor beside the accelerator.
  if (!hardware.accelerator || members.has("processor")) {
    hardware.processor = read_processor(members.member("processor"), origin + ": processor");
  }
  members.for_each("gemm", [&](const nlohmann::json& element, const std::string& path) {
    hardware.gemms.push_back(read_gemm(JsonMembers(element, path)));
  });
  members.for_each("memory", [&](const nlohmann::json& element, const std::string& path) {
    const JsonMembers rate(element, path);
    rate.require_known({"kernel", "bytes", "best", "median"});
    hardware.memory.push_back({.kernel = rate.word_of<MemoryKernel>("kernel", "memory loop"),
                               .bytes = rate.whole("bytes", 1),
                               .best = rate.rate("best"),
                               .median = rate.rate("median")});
  });
  if (members.has("collectives")) {
    members.for_each("collectives", [&](const nlohmann::json& element, const std::string& path) {
      hardware.collectives.push_back(read_collective(JsonMembers(element, path)));
    });
  }
  return hardware;
}

Hardware read_hardware(const fs::path& path) {
  return parse_hardware(read_file(path), path.string());
}

void require_same_processor(const Hardware& hardware, int threads, const fs::path& path) {
  if (hardware.accelerator) {
    throw Error("{} is about {}, and this run computes on the processor; leave run.hardware out",
                path.string(), describe(*hardware.accelerator));
  }
  const Processor present = this_processor(threads);
  const Processor& measured = hardware.processor;
  if (same_processor(measured, present)) return;
  throw Error(
      "{} was measured on {}; this is {}. Measure here with `tessera bench all --threads {} "
      "--output FILE`, or leave run.hardware out",
      path.string(), describe(measured), describe(present), threads);
}

void require_same_accelerator(const Hardware& hardware, const Accelerator& accelerator,
                              const fs::path& path) {
  const AcceleratorFacts present = facts_of(accelerator);
  if (!hardware.accelerator) {
    throw Error("{} is about the processor {}, and this run computes on {}; leave run.hardware out",
                path.string(), describe(hardware.processor), present.name);
  }
  const AcceleratorFacts& described = *hardware.accelerator;
  const bool same_kind = described.memory_bytes.origin == Origin::data_sheet
                             ? described.architecture == present.architecture &&
                                   described.multiprocessors.value == present.multiprocessors.value
                             : described.name == present.name;
  if (described.device == present.device && same_kind) return;
  throw Error(
      "{} is about {} ({}, {} multiprocessors); this is {} ({}, {}). Measure here with `tessera "
      "bench all --device {} --output FILE`, or leave run.hardware out",
      path.string(), described.name, described.architecture, described.multiprocessors.value,
      present.name, present.architecture, present.multiprocessors.value, word(present.device));
}

}  // namespace tessera
