#include "comm/launch.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

/// The variables in which a launcher says how many processes it starts, and which this one is.
struct LauncherVariables {
  const char* processes;
  const char* rank;
  const char* launcher;
};

constexpr std::array<LauncherVariables, 4> kVariables{{
    // Ours come first: a user sets them by hand.
    {"TESSERA_RANKS", "TESSERA_RANK", "the user"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"},
    {"PMI_SIZE", "PMI_RANK", "mpiexec"},
    // srun alone sets the first: the step is what it starts
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"},
}};

/// The number that a variable has. Nothing if it is none, or less than `least`.
std::optional<int> number_in(std::string_view text, int least) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.begin(), text.end(), number);
  if (problem != std::errc() || end != text.end() || number < least) return std::nullopt;
  return number;
}

}  // namespace

std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable) {
  const char* const address = variable(kAddressVariable);
  for (const auto& [of_processes, of_rank, launcher] : kVariables) {
    const char* value = variable(of_processes);
    if (value == nullptr) continue;
    const std::optional<int> processes = number_in(value, 1);
    if (!processes) {
      throw Error("{} is {}, expected the number of processes that {} started", of_processes,
                  in_quotes(value), launcher);
    }
    if (*processes == 1) return std::nullopt;
    const char* rank_text = variable(of_rank);
    const std::optional<int> rank = rank_text == nullptr ? std::nullopt : number_in(rank_text, 0);
    if (address != nullptr && (!rank || *rank >= *processes)) {
      throw Error("{} is {}, expected the number of this process, from 0 to {}", of_rank,
                  rank_text == nullptr ? "not set" : in_quotes(rank_text), *processes - 1);
    }
    Launch launch{launcher, *processes, rank.value_or(0)};
    if (address != nullptr) launch.address = address;
    return launch;
  }
  if (address == nullptr) return std::nullopt;
  throw Error(
      "{} says where several processes meet, but nothing says how many they are. Set TESSERA_RANKS "
      "and TESSERA_RANK for each, or let srun or mpirun start them",
      kAddressVariable);
}

std::optional<Launch> find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace tessera
