#include "comm/launch.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <unistd.h>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

/// The variables in which a launcher gives the number of processes and the rank of this process.
struct LauncherVariables {
  const char* processes;
  const char* rank;
  const char* launcher;
};

/// The variable of users who start processes by hand. In messages it stands for the launcher.
constexpr const char* kRanksByHand = "TESSERA_RANKS";

/// In order of preference: the variables that a user sets by hand come first.
constexpr std::array<LauncherVariables, 4> kVariables{{
    {kRanksByHand, "TESSERA_RANK", kRanksByHand},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"},
    {"PMI_SIZE", "PMI_RANK", "mpiexec"},
    // Only srun sets SLURM_STEP_NUM_TASKS. A batch script without srun has SLURM_NTASKS too.
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"},
}};

/// Returns the number in a variable's text; none if it is not a number, or less than `least`.
std::optional<int> number_in(std::string_view text, int least) {
  int number = 0;
  const auto [end, problem] = std::from_chars(text.begin(), text.end(), number);
  if (problem != std::errc() || end != text.end() || number < least) return std::nullopt;
  return number;
}

/// The least length of a token. Processes send proofs, which are computed from the token
/// (tcp/job_token.h). Whoever sees a proof can test guesses of a short token against it.
constexpr size_t kLeastTokenBytes = 16;

std::optional<std::string> token_in(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view token(text);
  if (token.size() < kLeastTokenBytes) {
    throw Error("{} has {} characters, expected {} or more that nobody can guess, such as {} gives",
                kTokenVariable, token.size(), kLeastTokenBytes, kTokenCommand);
  }
  return std::string(token);
}

}  // namespace

std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable) {
  const char* const address = variable(kAddressVariable);
  std::optional<Launch> found;
  // All variables are read, even after a launch is found: if the user and a launcher both describe
  // the launch, their numbers of processes must agree.
  for (const auto& [processes_variable, rank_variable, launcher] : kVariables) {
    const char* value = variable(processes_variable);
    if (value == nullptr) continue;
    const std::optional<int> processes = number_in(value, 1);
    if (!processes) {
      const bool by_hand = std::string_view(launcher) == kRanksByHand;
      throw Error("{} is {}, expected the number of processes, 1 or more{}", processes_variable,
                  in_quotes(value), by_hand ? "" : fmt::format(", that {} started", launcher));
    }
    if (found) {
      // TESSERA_RANKS was set by hand, or left from an earlier run.
      if (found->launcher == kRanksByHand && *processes > 1 && found->processes != *processes) {
        throw Error("{} is {}, but {} started {} processes; unset it, or set it so", kRanksByHand,
                    found->processes, launcher, *processes);
      }
      continue;
    }
    const char* rank_text = variable(rank_variable);
    // The rank is used only with an address: MPI numbers the processes itself.
    const std::optional<int> rank = rank_text == nullptr ? std::nullopt : number_in(rank_text, 0);
    if (*processes > 1 && address != nullptr && (!rank || *rank >= *processes)) {
      throw Error("{} is {}, expected the number of this process, from 0 to {}", rank_variable,
                  rank_text == nullptr ? "not set" : in_quotes(rank_text), *processes - 1);
    }
    found = Launch{launcher, *processes, rank.value_or(0)};
    if (address != nullptr) found->address = address;
  }
  if (!found && address != nullptr) {
    throw Error(
        "{} says where several processes meet, but nothing says how many they are. Set {} and "
        "TESSERA_RANK for each, or let srun or mpirun start them",
        kAddressVariable, kRanksByHand);
  }
  if (!found || found->processes == 1) return std::nullopt;
  if (found->launcher == kRanksByHand && address == nullptr) {
    throw Error("{} is {}, but {} does not say where the processes meet; set both, or neither",
                kRanksByHand, found->processes, kAddressVariable);
  }
  if (found->address) found->token = token_in(variable(kTokenVariable));
  return found;
}

std::optional<Launch> find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

std::string own_host() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

}  // namespace tessera
