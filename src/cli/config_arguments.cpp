#include "cli/config_arguments.h"

#include <CLI/CLI.hpp>

namespace tessera {

void add_config_arguments(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("CONFIG", arguments.file, "The configuration, a TOML file")->required();
  command
      .add_option("--set", arguments.overrides,
                  "Override one key: section.key=VALUE (repeatable; the last of a key counts)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace tessera
