#pragma once

#include <string>
#include <vector>

#include "config/load_config.h"
#include "train/initial_weights.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// What names a configuration on a command line: a TOML file, and overrides of single keys.
struct ConfigArguments {
  std::string file;
  std::vector<std::string> overrides;

  RunConfig load() const { return load_config(file, overrides, initial_model); }
};

/// Adds CONFIG and --set to a command. `arguments` must live until the command line is parsed.
void add_config_arguments(CLI::App& command, ConfigArguments& arguments);

}  // namespace tessera
