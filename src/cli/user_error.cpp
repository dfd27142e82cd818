#include "cli/user_error.h"

#include <filesystem>
#include <new>
#include <system_error>

#include <fmt/format.h>

namespace tessera {

std::optional<std::string> user_error(const std::exception& error) {
  if (const auto* on_path = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return fmt::format("cannot use {}: {}", on_path->path1().string(), on_path->code().message());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "the system gives no more memory; ask for less at a time or close other programs";
  }
  if (const auto* refused = dynamic_cast<const std::system_error*>(&error)) {
    return fmt::format("the system refuses: {}", refused->what());
  }
  return std::nullopt;
}

}  // namespace tessera
