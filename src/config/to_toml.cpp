#include <fmt/format.h>

#include "config/load_config.h"
#include "config/sections.h"

namespace tessera {

std::string to_toml(const RunConfig& config) {
  std::string text;
  for (const ConfigSection& section : all_sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Key& key : section.keys) {
      text += fmt::format("{} = {}\n", key.name, value_text(key.get(config)));
    }
    for (const TableList& list : section.lists) {
      for (size_t table = 0; table < list.size(config); ++table) {
        text += fmt::format("\n[[{}.{}]]\n", section.name, list.name);
        for (const Key& key : list.keys(table)) {
          text += fmt::format("{} = {}\n", key.name, value_text(key.get(config)));
        }
      }
    }
  }
  return text;
}

}  // namespace tessera
