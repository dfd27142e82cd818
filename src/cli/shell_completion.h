#pragma once

#include <span>
#include <string>

#include "cli/command_description.h"

namespace tessera {

/// Scripts that complete the program's commands, options and their values in a shell. `keys` are
/// what may follow --set: "train.steps". Where nothing else is known, names of files are offered.
std::string bash_completion(const CommandDescription& program, std::span<const std::string> keys);
std::string zsh_completion(const CommandDescription& program, std::span<const std::string> keys);

}  // namespace tessera
