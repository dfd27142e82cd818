#pragma once

#include <exception>
#include <optional>
#include <string>

namespace tessera {

/// Returns a sentence for the user on an exception that a user can cause but that is no
/// tessera::Error: a path that the file system refuses, or memory or threads that the system does
/// not give. Returns nothing for any other exception, which is a bug in the program.
std::optional<std::string> user_error(const std::exception& error);

}  // namespace tessera
