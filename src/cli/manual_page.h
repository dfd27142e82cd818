#pragma once

#include <string>

#include "cli/command_description.h"

namespace tessera {

/// The manual page of the program and all its commands, in the macros of man(7): section 1.
std::string manual_page(const CommandDescription& program, const std::string& version);

}  // namespace tessera
