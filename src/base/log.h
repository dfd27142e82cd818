#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace tessera {

/// A logger that writes one rank's messages to standard error, one line each. It is a value that is
/// passed down, not a global, so ranks that are threads of one process do not share it.
class Logger {
 public:
  Logger();
  /// Returns a logger that writes nothing, for ranks whose messages would repeat the first rank's.
  static Logger silent();

  template <typename... Arguments>
  void info(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    write(Level::info, fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  template <typename... Arguments>
  void warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    write(Level::warning, fmt::format(format, std::forward<Arguments>(arguments)...));
  }

 private:
  enum class Level { info, warning };
  void write(Level level, const std::string& message) const;

  struct Sink;
  explicit Logger(std::shared_ptr<Sink> sink) : sink_(std::move(sink)) {}
  std::shared_ptr<Sink> sink_;  // null: writes nothing
};

}  // namespace tessera
