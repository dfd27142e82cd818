#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "config/load_config.h"
#include "train/initial_weights.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// The arguments that name a configuration: a TOML file, and overrides of single keys.
struct ConfigArguments {
  std::string file;
  std::vector<std::string> overrides;

  /// Returns the configuration. `initial` gives the model that the keys of [model] start from.
  RunConfig load(const InitialModel& initial = initial_model) const {
    return load_config(file, overrides, initial);
  }
  /// Returns run.rank_timeout. A process needs it to join the others, before it loads the
  /// configuration for the run. If the configuration has an error, returns the default; load() then
  /// reports the error once the processes have joined.
  std::chrono::seconds rank_timeout() const;
};

/// A phase that a command is about. `config` is the run as if it were this phase alone (RunPhase).
struct ChosenPhase {
  std::string name;
  RunConfig config;
};

/// Returns the phase whose name or number is `choice`. If `choice` is empty, returns the first
/// phase of each different set of programs; of a run without [[train.phases]], returns the run
/// itself, without a name. Throws Error if there is no such phase.
std::vector<ChosenPhase> choose_phases(const RunConfig& config, const std::string& choice);

/// Adds --phase to a command. `default_text` says what the command takes if --phase is left out.
void add_phase_argument(CLI::App& command, std::string& phase, const std::string& default_text);

/// Adds CONFIG and --set to a command. `arguments` must live until the command line is parsed.
void add_config_arguments(CLI::App& command, ConfigArguments& arguments);

}  // namespace tessera
