#pragma once

#include <string>

#include "cli/command_description.h"

namespace tessera {

/// Returns the manual page (section 1) of the program and all its commands, in the macros of
/// man(7).
std::string manual_page(const CommandDescription& program, const std::string& version);

}  // namespace tessera
