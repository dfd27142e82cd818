#pragma once

#include <span>
#include <string>

#include "cli/command_description.h"

namespace tessera {

/// Returns a script that completes the program's commands, options and values in a shell. `keys`
/// are the words offered after --set: "train.steps". Where nothing else is known, the script offers
/// file names.
std::string bash_completion(const CommandDescription& program, std::span<const std::string> keys);
std::string zsh_completion(const CommandDescription& program, std::span<const std::string> keys);

}  // namespace tessera
