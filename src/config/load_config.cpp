#include "config/load_config.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/one_rank.h"
#include "config/sections.h"
#include "config/setting.h"

namespace tessera {
namespace {

std::string section_names(const std::vector<Section>& sections) {
  std::vector<std::string> names;
  for (const Section& section : sections) names.push_back("[" + section.name + "]");
  return join(names, ", ");
}

[[noreturn]] void refuse_section(const Setting& setting, const std::vector<Section>& sections) {
  std::vector<std::string> names;
  for (const Section& section : sections) names.push_back(section.name);
  names.insert(names.end(), kOneRankSections.begin(), kOneRankSections.end());
  const std::string nearest = nearest_name(setting.section, names);
  throw Error("{}: unknown section [{}]; {}", setting.where, setting.section,
              nearest.empty() ? "known are " + section_names(sections)
                              : fmt::format("did you mean [{}]?", nearest));
}

/// The sections that have a key of that name, as "[train]".
std::string homes(std::string_view key, const std::vector<Section>& sections) {
  std::vector<std::string> found;
  for (const Section& section : sections) {
    if (section.find(key) != nullptr) found.push_back("[" + section.name + "]");
  }
  return join(found, " and ");
}

[[noreturn]] void refuse_key(const Setting& setting, const Section& section,
                             const std::vector<Section>& sections) {
  const std::string start =
      fmt::format("{}: unknown key '{}' in [{}]", setting.where, setting.key, section.name);
  const std::string elsewhere = homes(setting.key, sections);
  if (!elsewhere.empty()) throw Error("{}; it is a key of {}", start, elsewhere);
  std::vector<std::string> names;
  for (const Key& key : section.keys) names.push_back(key.name);
  const std::string nearest = nearest_name(setting.key, names);
  if (!nearest.empty()) throw Error("{}; did you mean '{}'?", start, nearest);
  throw Error("{}; known are {}", start, join(names, ", "));
}

[[noreturn]] void refuse_sectionless(const Setting& setting, const std::vector<Section>& sections) {
  if (std::ranges::find(sections, setting.key, &Section::name) != sections.end()) {
    throw Error("{}: '{}' is a section, not a key; write [{}] and its keys below it", setting.where,
                setting.key, setting.key);
  }
  const std::string elsewhere = homes(setting.key, sections);
  throw Error("{}: the key '{}' stands in no section; {}", setting.where, setting.key,
              elsewhere.empty() ? "sections are " + section_names(sections)
                                : "write it below " + elsewhere);
}

const Section& find_section(const Setting& setting, const std::vector<Section>& sections) {
  if (setting.section.empty()) refuse_sectionless(setting, sections);
  const auto section = std::ranges::find(sections, setting.section, &Section::name);
  if (section == sections.end()) refuse_section(setting, sections);
  return *section;
}

void apply(const Setting& setting, const std::vector<Section>& sections, RunConfig& config) {
  const Section& section = find_section(setting, sections);
  if (setting.key.empty()) return;  // a section without keys changes nothing
  const Key* key = section.find(setting.key);
  if (key == nullptr) refuse_key(setting, section, sections);
  try {
    key->set(config, checked_value(key->rule, setting.value));
  } catch (const Error& error) {
    throw Error("{}: {}.{}: {}", setting.where, setting.section, setting.key, error.what());
  }
}

bool names_family(const Setting& setting) {
  return setting.section == "model" && setting.key == "family";
}

}  // namespace

RunConfig parse_config(std::string_view text, const std::string& name,
                       std::span<const std::string> overrides) {
  std::vector<Setting> settings = settings_of_text(text, name);
  for (const std::string& text_of_override : overrides) {
    settings.push_back(setting_of_override(text_of_override));
  }
  std::erase_if(settings, accepted_on_one_rank);

  const std::vector<Section> sections = all_sections();
  RunConfig config;
  // The family comes first, because its preset fills the whole section.
  for (const Setting& setting : settings) {
    if (names_family(setting)) apply(setting, sections, config);
  }
  config.model = family_preset(config.model.family);
  for (const Setting& setting : settings) apply(setting, sections, config);
  try {
    validate(config);
  } catch (const Error& error) {
    throw Error("{}: {}", name, error.what());
  }
  return config;
}

RunConfig load_config(const fs::path& path, std::span<const std::string> overrides) {
  return parse_config(read_file(path), path.string(), overrides);
}

}  // namespace tessera
