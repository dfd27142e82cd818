#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

/// The contradictions found in a configuration, collected so that one error reports each once.
class Contradictions {
 public:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
    if (std::ranges::find(found_, text) == found_.end()) found_.push_back(std::move(text));
  }
  bool none() const { return found_.empty(); }
  /// Throws Error with everything that was found. Does nothing if nothing was found.
  void require_none() const {
    if (found_.empty()) return;
    if (found_.size() == 1) throw Error(found_.front());
    throw Error("{} contradictions:\n  {}", found_.size(), join(found_, "\n  "));
  }

 private:
  std::vector<std::string> found_;
};

}  // namespace tessera
