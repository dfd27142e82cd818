#include <fmt/format.h>

#include "config/load_config.h"
#include "config/sections.h"

namespace tessera {
namespace {

/// A key of a table that is left out has no line.
std::string line_of(const Key& key, const RunConfig& config) {
  const ConfigValue value = key.get(config);
  if (std::holds_alternative<OtherValue>(value)) return "";
  return fmt::format("{} = {}\n", key.name, value_text(value));
}

}  // namespace

std::string to_toml(const RunConfig& config) {
  std::string text;
  for (const ConfigSection& section : all_sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Key& key : section.keys) text += line_of(key, config);
    for (const TableList& list : section.lists) {
      for (size_t table = 0; table < list.size(config); ++table) {
        text += fmt::format("\n[[{}.{}]]\n", section.name, list.name);
        for (const Key& key : list.keys(table)) text += line_of(key, config);
      }
    }
  }
  return text;
}

}  // namespace tessera
