#pragma once

#include <exception>
#include <optional>
#include <string>

namespace tessera {

/// Returns a sentence for the user on an error that a user can cause and no room of the program has
/// reported in its own words: a path that the file system refuses, or memory or threads that the
/// system does not give. Returns nothing for any other exception, which is a mistake of the
/// program.
std::optional<std::string> user_error(const std::exception& error);

}  // namespace tessera
