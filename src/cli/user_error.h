#pragma once

#include <exception>
#include <optional>
#include <string>

namespace tessera {

/// Returns a sentence for the user about an exception of the standard library that a user can
/// cause: the file system refuses a path, or the system gives no memory or no threads. Returns
/// nothing for any other exception, which is a bug in the program.
std::optional<std::string> user_error(const std::exception& error);

}  // namespace tessera
