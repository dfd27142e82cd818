#include "hardware/accelerator_facts.h"

#include <fmt/format.h>

#include "base/strict_json.h"
#include "base/text.h"
#include "hardware/json_members.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Reads a member that is an object of a value and its origin. `read_value` gets the object.
template <typename ReadValue>
auto read_figure(const JsonMembers& members, const char* name, const ReadValue& read_value) {
  const JsonMembers object(members.member(name), fmt::format("{}: {}", members.path(), name));
  object.require_known({"value", "origin"});
  return Figure<decltype(read_value(object))>{
      read_value(object), object.word_of<Origin>("origin", "origin of figures")};
}
Figure<double> read_rate(const JsonMembers& members, const char* name) {
  constexpr double kLeastRate = 1e6;  // per second: below every rate of an accelerator
  return read_figure(members, name,
                     [](const JsonMembers& object) { return object.rate("value", kLeastRate); });
}

template <typename Number>
OrderedJson figure_json(const Figure<Number>& figure) {
  return {{"value", figure.value}, {"origin", word(figure.origin)}};
}

Device known_accelerator(std::string_view name) {
  const Device device = known_word<Device>(name, "device");
  if (device == Device::cpu) throw Error("the device is cpu, which is no accelerator");
  return device;
}

/// Throws Error unless the architecture is one of the device's vendor.
void require_architecture(const JsonMembers& members, Device device) {
  const std::string architecture = members.text("architecture");
  if (device == Device::cuda && !architecture.starts_with("sm_")) {
    members.refuse("architecture", "one of the device \"cuda\", such as \"sm_90\"");
  }
  if (device == Device::hip && !architecture.starts_with("gfx")) {
    members.refuse("architecture", "one of the device \"hip\", such as \"gfx942\"");
  }
  if (device == Device::emulated && architecture != word(Device::emulated)) {
    members.refuse("architecture", "\"emulated\", as the device");
  }
}

std::vector<PeakRate> read_peaks(const JsonMembers& members) {
  const std::string path = members.path() + ": peak_flops";
  const JsonMembers peaks(members.member("peak_flops"), path);
  std::vector<PeakRate> result;
  for (const auto& [type, unused] : members.member("peak_flops").items()) {
    const auto dtype_of = [&](const std::string& name) {
      try {
        return dtype_from_name(name);
      } catch (const Error& error) {
        throw Error("{}: {}", path, error.what());
      }
    };
    const DType dtype = dtype_of(printable(type));
    result.push_back({dtype, read_rate(peaks, type.c_str())});
  }
  return result;
}

}  // namespace

AcceleratorFacts facts_of(const Accelerator& accelerator) {
  const AcceleratorProperties properties = accelerator.properties();
  return {.name = accelerator.name(),
          .device = accelerator.device(),
          .architecture = properties.architecture,
          .lanes = {properties.lanes, Origin::driver},
          .multiprocessors = {properties.multiprocessors, Origin::driver},
          .memory_bytes = {properties.memory_bytes, Origin::driver}};
}

Target target_of(const AcceleratorFacts& facts) {
  return {.device = facts.device,
          .memory_bytes = facts.memory_bytes.value,
          .multiprocessors = facts.multiprocessors.value};
}

std::string describe(const AcceleratorFacts& facts) {
  return fmt::format("{}, {} ({})", facts.name, format_bytes(facts.memory_bytes.value),
                     word(facts.memory_bytes.origin));
}

OrderedJson accelerator_json(const AcceleratorFacts& facts) {
  OrderedJson json{{"name", facts.name},
                   {"device", word(facts.device)},
                   {"architecture", facts.architecture},
                   {"lanes", figure_json(facts.lanes)},
                   {"multiprocessors", figure_json(facts.multiprocessors)},
                   {"memory_bytes", figure_json(facts.memory_bytes)}};
  if (facts.memory_bandwidth) json["memory_bandwidth"] = figure_json(*facts.memory_bandwidth);
  json["peak_flops"] = OrderedJson::object();
  for (const PeakRate& peak : facts.peaks) {
    json["peak_flops"][std::string(dtype_name(peak.dtype))] = figure_json(peak.flops);
  }
  if (facts.tf32_flops) json["tf32_flops"] = figure_json(*facts.tf32_flops);
  json["links"] = OrderedJson::array();
  for (const LinkFacts& link : facts.links) {
    json["links"].push_back({{"name", link.name}, {"each_way", figure_json(link.each_way)}});
  }
  return json;
}

AcceleratorFacts parse_accelerator(const nlohmann::json& json, const std::string& path) {
  const JsonMembers members(json, path);
  members.require_known({"name", "device", "architecture", "lanes", "multiprocessors",
                         "memory_bytes", "memory_bandwidth", "peak_flops", "tf32_flops", "links"});
  AcceleratorFacts facts{.name = members.text("name"),
                         .device = members.converted("device", known_accelerator),
                         .architecture = members.text("architecture")};
  require_architecture(members, facts.device);
  const auto read_count = [](const JsonMembers& object) { return object.whole_int("value", 1); };
  facts.lanes = read_figure(members, "lanes", read_count);
  if (facts.lanes.value != 32 && facts.lanes.value != 64) {
    members.refuse("lanes", "32 or 64 threads of a warp");
  }
  facts.multiprocessors = read_figure(members, "multiprocessors", read_count);
  facts.memory_bytes = read_figure(members, "memory_bytes", [](const JsonMembers& object) {
    constexpr int64_t kMostBytes = int64_t{1} << 50;  // 1 PiB
    return object.whole("value", 1, kMostBytes);
  });
  if (members.has("memory_bandwidth")) {
    facts.memory_bandwidth = read_rate(members, "memory_bandwidth");
  }
  facts.peaks = read_peaks(members);
  if (members.has("tf32_flops")) facts.tf32_flops = read_rate(members, "tf32_flops");
  members.for_each("links", [&](const nlohmann::json& element, const std::string& link_path) {
    const JsonMembers link(element, link_path);
    link.require_known({"name", "each_way"});
    facts.links.push_back({link.text("name"), read_rate(link, "each_way")});
  });
  return facts;
}

}  // namespace tessera
