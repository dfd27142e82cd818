#include <fmt/format.h>

#include "config/effects.h"
#include "config/load_config.h"
#include "config/sections.h"

namespace tessera {
namespace {

/// Returns the defaults of all keys, for the family and the numbers of tables of `config`.
RunConfig default_config(const RunConfig& config) {
  RunConfig result;
  result.model = family_preset(config.model.family);
  for (const ConfigSection& section : all_sections()) {
    for (const TableList& list : section.lists) list.resize(result, list.size(config));
  }
  return result;
}

/// Returns the line of a key; empty for a key of a table that leaves it out. A key that has its
/// default value and no effect becomes a comment: it then does not count as set when the file is
/// read, and no message says that it has no effect.
std::string line_of(const Key& key, const Circumstances& here, const RunConfig& defaults) {
  const ConfigValue value = key.get(here.config);
  if (std::holds_alternative<OtherValue>(value)) return "";
  const std::string line = fmt::format("{} = {}", key.name, value_text(value));
  if (value != key.get(defaults)) return line + "\n";
  const std::string why = why_without_effect(key, here);
  return why.empty() ? line + "\n" : fmt::format("# {}  (no effect: {})\n", line, why);
}

}  // namespace

std::string to_toml(const RunConfig& config) {
  const RunConfig defaults = default_config(config);
  const std::vector<RunPhase> phases = phases_of(config);
  Circumstances here{.config = config, .phases = phases};
  std::string text;
  for (const ConfigSection& section : all_sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Key& key : section.keys) text += line_of(key, here, defaults);
    for (const TableList& list : section.lists) {
      for (here.table = 0; here.table < list.size(config); ++here.table) {
        text += fmt::format("\n[[{}.{}]]\n", section.name, list.name);
        for (const Key& key : list.keys(here.table)) text += line_of(key, here, defaults);
      }
    }
  }
  return text;
}

}  // namespace tessera
