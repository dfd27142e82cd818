#include "cli/config_arguments.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "comm/launch.h"

namespace tessera {

std::chrono::seconds ConfigArguments::rank_timeout() const {
  const auto by_default = std::chrono::seconds(RunSection().rank_timeout);
  if (!find_launch())
    return by_default;  // nobody waits, and the file may be a pipe: it is read once
  try {
    // No key of [run] follows from the model, so that of checkpoint.initial need not be read.
    const auto any_model = [](const RunConfig& /*named*/) { return ModelConfig(); };
    return std::chrono::seconds(load(any_model).run.rank_timeout);
  } catch (const Error&) {
    return by_default;
  }
}

void add_config_arguments(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("CONFIG", arguments.file, "The configuration, a TOML file")->required();
  command
      .add_option("--set", arguments.overrides,
                  "Override one key: section.key=VALUE (repeatable; the last of a key counts)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace tessera
