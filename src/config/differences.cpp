#include "config/differences.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/sections.h"

namespace tessera {
namespace {

/// Adds a difference for each key that differs. Its name is `prefix` and the key's name.
void compare_keys(const std::string& prefix, const std::vector<Key>& keys, const RunConfig& first,
                  const RunConfig& second, std::vector<ConfigDifference>& result) {
  for (const Key& key : keys) {
    const std::string first_text = value_text(key.get(first));
    const std::string second_text = value_text(key.get(second));
    if (first_text != second_text) result.push_back({prefix + key.name, first_text, second_text});
  }
}

void compare_lists(const std::string& name, const TableList& list, const RunConfig& first,
                   const RunConfig& second, std::vector<ConfigDifference>& result) {
  const size_t sizes[] = {list.size(first), list.size(second)};
  if (sizes[0] != sizes[1]) {
    result.push_back(
        {name, fmt::format("{} tables", sizes[0]), fmt::format("{} tables", sizes[1])});
  }
  for (size_t table = 0; table < std::min(sizes[0], sizes[1]); ++table) {
    compare_keys(fmt::format("{}.{}.", name, table), list.keys(table), first, second, result);
  }
}

}  // namespace

std::vector<ConfigDifference> differences(const RunConfig& first, const RunConfig& second) {
  std::vector<ConfigDifference> result;
  for (const ConfigSection& section : all_sections()) {
    compare_keys(section.name + ".", section.keys, first, second, result);
    for (const TableList& list : section.lists) {
      compare_lists(fmt::format("{}.{}", section.name, list.name), list, first, second, result);
    }
  }
  return result;
}

}  // namespace tessera
