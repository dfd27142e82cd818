#include "cli/config_arguments.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/file_options.h"
#include "comm/launch.h"
#include "config/phases.h"

namespace tessera {

std::chrono::seconds ConfigArguments::rank_timeout() const {
  const auto default_timeout = std::chrono::seconds(RunSection().rank_timeout);
  // A single process waits for none, and must not read the file here: a pipe can be read only once.
  if (!find_launch()) return default_timeout;
  try {
    // No key of [run] depends on the model, so checkpoint.initial need not be read.
    const auto any_model = [](const RunConfig& /*config*/) { return ModelConfig(); };
    return std::chrono::seconds(load(any_model).run.rank_timeout);
  } catch (const Error&) {
    return default_timeout;
  }
}

std::vector<ChosenPhase> choose_phases(const RunConfig& config, const std::string& choice) {
  if (config.train.phases.empty()) {
    if (choice.empty()) return {{"", config}};
    throw Error("--phase is {}, and the configuration has no [[train.phases]]; leave it out",
                choice);
  }
  const std::vector<RunPhase> phases = phases_of(config);
  std::vector<ChosenPhase> chosen;
  if (!choice.empty()) {
    const RunPhase& phase = phases[find_phase(phases, choice)];
    return {{phase.name, phase.config}};
  }
  for (size_t i = 0; i < phases.size(); ++i) {
    const auto same_programs = [&](const RunPhase& other) {
      return other.same_programs(phases[i]);
    };
    const auto first_alike = std::ranges::find_if(phases, same_programs);
    if (first_alike == phases.begin() + static_cast<std::ptrdiff_t>(i)) {
      chosen.push_back({phases[i].name, phases[i].config});
    }
  }
  return chosen;
}

void add_phase_argument(CLI::App& command, std::string& phase, const std::string& default_text) {
  command
      .add_option(
          "--phase", phase,
          "One of [[train.phases]], by its name or number, from 1 on; left out: " + default_text)
      ->check([](const std::string& text) {
        return text.empty() ? "it is empty; give a phase's name or number, or leave it out" : "";
      });
}

void add_config_arguments(CLI::App& command, ConfigArguments& arguments) {
  add_input(command, "CONFIG", arguments.file, "The configuration, a TOML file")->required();
  command
      .add_option("--set", arguments.overrides,
                  "Override one key: section.key=VALUE (repeatable; the last of a key counts)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace tessera
