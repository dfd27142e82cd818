#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"

namespace tessera::testing {

/// The names of what stands in a folder, sorted.
inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace tessera::testing
