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
  /// Returns run.rank_timeout, for the time before the ranks have met. If the configuration has an
  /// error, returns the default; the error is reported when the ranks have met.
  std::chrono::seconds rank_timeout() const;
};

/// A phase of the run that a command is about. Its configuration has no phases.
struct ChosenPhase {
  std::string name;
  RunConfig config;
};

/// Returns the phase that `text` names or numbers. If `text` is empty, returns one phase for each
/// different set of programs, or the run itself, without a name, if there are no [[train.phases]].
/// Throws Error when there is no such phase.
std::vector<ChosenPhase> choose_phases(const RunConfig& config, const std::string& text);

/// Adds --phase to a command. `without` says what the command does without it.
void add_phase_argument(CLI::App& command, std::string& phase, const std::string& without);

/// Adds CONFIG and --set to a command. `arguments` must live until the command line is parsed.
void add_config_arguments(CLI::App& command, ConfigArguments& arguments);

}  // namespace tessera
