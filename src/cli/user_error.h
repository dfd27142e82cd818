#pragma once

#include <exception>
#include <optional>
#include <string>

namespace tessera {

/// The last resort for what a user can cause and no room of the program has told in its own words:
/// a path that the file system refuses, memory or threads that the system does not give. A sentence
/// for the user; nothing for any other exception, which is a mistake of the program.
std::optional<std::string> user_error(const std::exception& error);

}  // namespace tessera
