#include "hardware/accelerator_facts.h"

#include <fmt/format.h>

#include "base/strict_json.h"
#include "base/text.h"
#include "hardware/json_members.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

Origin known_origin(std::string_view name) { return known_word<Origin>(name, "origin of figures"); }

/// Calls read(members, "value") on the member, which is an object of a value and its origin.
template <typename Read>
auto figure(const JsonMembers& members, const char* name, const Read& read) {
  const JsonMembers of(members.member(name), fmt::format("{}: {}", members.place(), name));
  return Figure<decltype(read(of))>{read(of), of.named("origin", known_origin)};
}
Figure<double> rate_figure(const JsonMembers& members, const char* name) {
  return figure(members, name, [](const JsonMembers& of) { return of.rate("value"); });
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

std::vector<PeakRate> read_peaks(const JsonMembers& members) {
  const std::string place = members.place() + ": peak_flops";
  const JsonMembers peaks(members.member("peak_flops"), place);
  std::vector<PeakRate> result;
  for (const auto& [type, unused] : members.member("peak_flops").items()) {
    const auto known = [&](const std::string& name) {
      try {
        return dtype_from_name(name);
      } catch (const Error& error) {
        throw Error("{}: {}", place, error.what());
      }
    };
    const DType dtype = known(printable(type));
    result.push_back({dtype, rate_figure(peaks, type.c_str())});
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
  json["links"] = OrderedJson::array();
  for (const LinkFacts& link : facts.links) {
    json["links"].push_back({{"name", link.name}, {"each_way", figure_json(link.each_way)}});
  }
  return json;
}

AcceleratorFacts parse_accelerator(const nlohmann::json& json, const std::string& place) {
  const JsonMembers members(json, place);
  AcceleratorFacts facts{.name = members.text("name"),
                         .device = members.named("device", known_accelerator),
                         .architecture = members.text("architecture")};
  const auto threads = [](const JsonMembers& of) { return of.small("value", 1, "a few threads"); };
  facts.lanes = figure(members, "lanes", threads);
  if (facts.lanes.value != 32 && facts.lanes.value != 64) {
    members.wrong("lanes", "32 or 64 threads of a warp");
  }
  facts.multiprocessors = figure(members, "multiprocessors", [](const JsonMembers& of) {
    return of.small("value", 1, "a number of multiprocessors");
  });
  facts.memory_bytes =
      figure(members, "memory_bytes", [](const JsonMembers& of) { return of.whole("value", 1); });
  if (members.has("memory_bandwidth")) {
    facts.memory_bandwidth = rate_figure(members, "memory_bandwidth");
  }
  facts.peaks = read_peaks(members);
  members.each("links", [&](const nlohmann::json& element, const std::string& where) {
    const JsonMembers link(element, where);
    facts.links.push_back({link.text("name"), rate_figure(link, "each_way")});
  });
  return facts;
}

}  // namespace tessera
