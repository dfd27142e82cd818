#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace tessera {

/// Messages of one rank to standard error, one line each. It is a value that is handed down, not a
/// global, so that ranks that are threads of one process do not share it.
class Logger {
 public:
  /// `name` stands in front of each line when it is not empty (for example "rank 3").
  explicit Logger(const std::string& name = "");

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
  std::shared_ptr<Sink> sink_;
};

}  // namespace tessera
