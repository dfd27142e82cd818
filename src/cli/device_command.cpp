#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "device/device_libraries.h"
#include "hardware/accelerator_facts.h"

namespace tessera {
namespace {

struct DeviceArguments {
  std::string device{word(Device::cuda)};
  bool json = false;
};

void run(const DeviceArguments& arguments) {
  const auto device = from_word<Device>(arguments.device);
  if (device == Device::cpu) {
    throw Error("--device is cpu, which needs no opening; name an accelerator");
  }
  const auto accelerator = open_accelerator(device);
  const AcceleratorFacts facts = facts_of(*accelerator);
  const int64_t free = accelerator->free_bytes();
  const DeviceLibraries found = device_libraries(device);
  if (arguments.json) {
    nlohmann::ordered_json json{{"accelerator", accelerator_json(facts)}, {"free_bytes", free}};
    json["libraries"] = nlohmann::ordered_json::array();
    for (const LibraryFacts& library : found.libraries) {
      json["libraries"].push_back(
          {{"purpose", library.purpose}, {"file", library.file}, {"version", library.version}});
    }
    json["description"] = found.description;
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("{}\n{}, {} multiprocessors, warps of {}, {} of memory free\n", describe(facts),
             facts.architecture, facts.multiprocessors.value, facts.lanes.value,
             format_bytes(free));
  for (const LibraryFacts& library : found.libraries) {
    fmt::print("{}: {}, version {}\n", library.purpose, library.file, library.version);
  }
}

}  // namespace

void add_device_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("device", "Open a device and say what it and its libraries are");
  auto arguments = std::make_shared<DeviceArguments>();
  add_word<Device>(*command, "--device", arguments->device, "The device to open");
  command->add_flag("--json", arguments->json, "Print JSON, with cuDNN's own description of a GPU");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace tessera
