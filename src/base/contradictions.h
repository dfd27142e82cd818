#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace tessera {

/// What is wrong with a configuration, gathered so that all of it is told at once.
class Contradictions {
 public:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    found_.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  bool none() const { return found_.empty(); }
  /// Throws Error with all that was found; does nothing where nothing was.
  void require_none() const;

 private:
  std::vector<std::string> found_;
};

}  // namespace tessera
