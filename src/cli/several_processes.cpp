#include "cli/several_processes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "comm/launch.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kOfProcesses{"train", "eval", "verify",
                                                       "bench collectives"};

/// The time that processes other than the first wait before they throw. The launcher ends all
/// processes when one ends with an error, so the error is usually printed once, by the first. The
/// others print it too if the first one does not run.
constexpr std::chrono::seconds kTimeOfFirst{1};

std::string named_command(const CLI::App& app) {
  std::string name;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().back();
    name += (name.empty() ? "" : " ") + at->get_name();
  }
  return name;
}

}  // namespace

void refuse_several_processes(const CLI::App& app) {
  const std::string command = named_command(app);
  if (std::ranges::find(kOfProcesses, command) != kOfProcesses.end()) return;
  const std::optional<Launch> launch = find_launch();
  if (!launch) return;
  if (launch->rank > 0) std::this_thread::sleep_for(kTimeOfFirst);
  throw Error(
      "{} started {} processes, and `tessera {}` runs in one: each would do all of it. Start it "
      "without {}. Those that run over processes are train, eval, verify and bench collectives",
      launch->launcher, launch->processes, command, launch->launcher);
}

}  // namespace tessera
