#include "config/differences.h"

#include <fmt/format.h>

#include "config/sections.h"

namespace tessera {

std::vector<ConfigDifference> differences(const RunConfig& first, const RunConfig& second) {
  std::vector<ConfigDifference> result;
  for (const Section& section : all_sections()) {
    for (const Key& key : section.keys) {
      const std::string a = value_text(key.get(first));
      const std::string b = value_text(key.get(second));
      if (a != b) result.push_back({fmt::format("{}.{}", section.name, key.name), a, b});
    }
  }
  return result;
}

}  // namespace tessera
