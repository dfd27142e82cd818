#include "comm/launch.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

/// A variable in which a launcher says how many processes it starts.
struct LauncherVariable {
  const char* name;
  const char* launcher;
};

constexpr std::array<LauncherVariable, 3> kVariables{{
    {"OMPI_COMM_WORLD_SIZE", "mpirun"},
    {"PMI_SIZE", "mpiexec"},
    {"SLURM_STEP_NUM_TASKS", "srun"},  // srun alone sets it: the step is what it starts
}};

}  // namespace

std::optional<Launch> find_launch(const std::function<const char*(const char* name)>& variable) {
  for (const auto& [name, launcher] : kVariables) {
    const char* value = variable(name);
    if (value == nullptr) continue;
    const std::string_view text = value;
    int processes = 0;
    const auto [end, problem] = std::from_chars(text.begin(), text.end(), processes);
    if (problem != std::errc() || end != text.end() || processes < 1) {
      throw Error("{} is {}, expected the number of processes that {} started", name,
                  in_quotes(text), launcher);
    }
    if (processes > 1) return Launch{launcher, processes};
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Launch> find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace tessera
