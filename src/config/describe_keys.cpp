#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "config/load_config.h"
#include "config/sections.h"

namespace tessera {
namespace {

/// Returns one configuration per family, with everything else left out.
std::vector<std::pair<std::string, RunConfig>> defaults_by_family() {
  std::vector<std::pair<std::string, RunConfig>> defaults;
  for (const std::string_view name : kWordsOf<Family>) {
    defaults.emplace_back(name, RunConfig{});
    defaults.back().second.model = family_preset(from_word<Family>(name));
  }
  return defaults;
}

/// Returns "300", or "16 (olmoe), 32 (llama)" if the families differ.
std::string default_text(const Key& key,
                         const std::vector<std::pair<std::string, RunConfig>>& defaults) {
  std::vector<std::string> family_texts;
  bool equal = true;
  const ConfigValue first = key.get(defaults.front().second);
  for (const auto& [family, config] : defaults) {
    const ConfigValue value = key.get(config);
    equal = equal && value == first;
    family_texts.push_back(fmt::format("{} ({})", value_text(value), family));
  }
  return equal ? value_text(first) : join(family_texts, ", ");
}

/// Adds the entry of a key to `text`.
void describe_key(const Key& key, const std::string& default_value, std::string& text) {
  text += fmt::format("  {} = {}\n      {} ({})\n", key.name, default_value, key.help,
                      rule_text(key.rule));
}

void describe_list(const ConfigSection& section, const TableList& list, std::string& text) {
  text += fmt::format("\n[[{}.{}]] {}\n", section.name, list.name, list.help);
  RunConfig config;
  list.resize(config, 1);
  for (const Key& key : list.keys(0)) describe_key(key, value_text(key.get(config)), text);
}

}  // namespace

std::string describe_keys() {
  auto defaults = defaults_by_family();
  std::string text;
  for (const ConfigSection& section : all_sections()) {
    text += fmt::format("{}[{}] {}\n", text.empty() ? "" : "\n", section.name, section.help);
    for (const Key& key : section.keys) {
      const bool is_family = section.name == "model" && key.name == "family";
      const std::string default_value =
          is_family ? value_text(key.get(RunConfig{})) : default_text(key, defaults);
      describe_key(key, default_value, text);
    }
    for (const TableList& list : section.lists) describe_list(section, list, text);
  }
  return text;
}

}  // namespace tessera
