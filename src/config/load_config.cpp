// A file and the overrides become a list of settings (see Setting). parse_config() first applies
// those that decide the starting values of [model], then all settings in their order, and then
// validates the whole. parse_parallel() validates [parallel] alone. A setting finds its key by the
// names of its section and, if it has one, of its list of tables. The refuse_ functions write the
// errors for unknown names.

#include "config/load_config.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "config/phases.h"
#include "config/pipeline_of.h"
#include "config/sections.h"
#include "config/setting.h"

namespace tessera {
namespace {

/// A key that is planned but not in this build. A file may set the key to one of its `neutral`
/// values, which ask for nothing that the build lacks, such as a placement "none".
struct AbsentKey {
  std::string_view section;
  std::string name;
  std::vector<ConfigValue> neutral;
};

std::vector<AbsentKey> absent_keys() {
  return {{"parallel", "context_mode", {std::string("all_gather")}}};
}

/// Returns "give 1, or " with the values that ask for nothing; empty without such values.
std::string neutral_advice(const AbsentKey& key) {
  std::vector<std::string> values;
  for (const ConfigValue& value : key.neutral) values.push_back(value_text(value));
  return values.empty() ? "" : "give " + join(values, " or ") + ", or ";
}

/// Returns true if the setting is of a key that this build lacks and its value asks for nothing.
/// Throws Error if the value asks for more. Returns false for all other settings.
bool is_neutral_absent_key(const Setting& setting) {
  const std::vector<AbsentKey> keys = absent_keys();
  const auto key = std::ranges::find_if(keys, [&](const AbsentKey& known) {
    return known.section == setting.section && known.name == setting.key;
  });
  if (key == keys.end()) return false;
  if (std::ranges::find(key->neutral, setting.value) != key->neutral.end()) return true;
  throw Error("{}: {}.{} = {}: this build does not have it; {}leave the key out", setting.where,
              setting.section, setting.key, value_text(setting.value), neutral_advice(*key));
}

/// Returns the names of keys, sections or lists.
template <typename Named>
std::vector<std::string> names_of(const std::vector<Named>& items) {
  std::vector<std::string> names;
  for (const Named& item : items) names.push_back(item.name);
  return names;
}

std::string section_names(const std::vector<ConfigSection>& sections) {
  return "[" + join(names_of(sections), "], [") + "]";
}

/// Returns the sections that have a key of that name, as "[train]". If no section has it, returns
/// the lists with such a key; lists come second, because their tables may repeat keys of sections.
std::string sections_with_key(std::string_view key, const std::vector<ConfigSection>& sections) {
  std::vector<std::string> found;
  for (const ConfigSection& section : sections) {
    if (find_named(section.keys, key) != nullptr) found.push_back("[" + section.name + "]");
  }
  if (!found.empty()) return join(found, " and ");
  for (const ConfigSection& section : sections) {
    for (const TableList& list : section.lists) {
      if (find_named(list.keys(0), key) == nullptr) continue;
      found.push_back(fmt::format("[[{}.{}]]", section.name, list.name));
    }
  }
  return join(found, " and ");
}

/// Throws Error on an unknown key. `section` is its section or list, written as "[train]", and
/// `known` are the keys there.
[[noreturn]] void refuse_key(const Setting& setting, const std::string& section,
                             const std::vector<std::string>& known,
                             const std::vector<ConfigSection>& sections) {
  const std::string problem =
      fmt::format("{}: unknown key {} in {}", setting.where, in_quotes(setting.key), section);
  const std::string elsewhere = sections_with_key(setting.key, sections);
  if (!elsewhere.empty()) throw Error("{}; it is a key of {}", problem, elsewhere);
  const std::string nearest = nearest_name(setting.key, known);
  if (!nearest.empty()) throw Error("{}; did you mean '{}'?", problem, nearest);
  throw Error("{}; known are {}", problem, join(known, ", "));
}

/// Throws Error on a key above the first section.
[[noreturn]] void refuse_sectionless(const Setting& setting,
                                     const std::vector<ConfigSection>& sections) {
  if (find_named(sections, setting.key) != nullptr) {
    throw Error("{}: '{}' is a section, not a key; write [{}] and its keys below it", setting.where,
                setting.key, setting.key);
  }
  const std::string elsewhere = sections_with_key(setting.key, sections);
  throw Error("{}: the key {} stands in no section; {}", setting.where, in_quotes(setting.key),
              elsewhere.empty() ? "sections are " + section_names(sections)
                                : "write it below " + elsewhere);
}

const ConfigSection& find_section(const Setting& setting,
                                  const std::vector<ConfigSection>& sections) {
  if (setting.section.empty()) refuse_sectionless(setting, sections);
  const ConfigSection* section = find_named(sections, setting.section);
  if (section != nullptr) return *section;
  const std::string nearest = nearest_name(setting.section, names_of(sections));
  throw Error("{}: unknown section [{}]; {}", setting.where, printable(setting.section),
              nearest.empty() ? "known are " + section_names(sections)
                              : fmt::format("did you mean [{}]?", nearest));
}

/// Sets a key and notes it as given. `path` is the key with its section, for errors and for
/// RunConfig::given.
void apply_value(const Setting& setting, const std::string& path, const Key& key,
                 RunConfig& config) {
  try {
    key.set(config, checked_value(key.rule, setting.value));
  } catch (const Error& error) {
    throw Error("{}: {}: {}", setting.where, path, error.what());
  }
  config.given.insert(path);
}

/// Empties a list. The keys of its tables no longer count as given.
void clear_list(const std::string& section, const TableList& list, RunConfig& config) {
  list.resize(config, 0);
  const std::string prefix = fmt::format("{}.{}.", section, list.name);
  std::erase_if(config.given, [&](const std::string& path) { return path.starts_with(prefix); });
}

/// Returns the number of the table that a setting means. The setting gives a number, at most one
/// past the last table, or the table's label.
size_t table_number(const Setting& setting, const TableList& list, const RunConfig& config) {
  const size_t size = list.size(config);
  const bool is_number = setting.table.size() <= 6 &&  // so that stoul() cannot overflow
                         setting.table.find_first_not_of("0123456789") == std::string::npos;
  if (is_number && std::stoul(setting.table) <= size) return std::stoul(setting.table);
  std::vector<std::string> labels;
  for (size_t i = 0; i < size; ++i) {
    labels.push_back(list.label(config, i));
    if (labels.back() == setting.table) return i;
    if (labels.back().empty()) labels.back() = std::to_string(i);
  }
  throw Error(
      "{}: there is no table {} in [[{}.{}]], which has {}{}; name one of them or its "
      "number, counted from 0",
      setting.where, printable(setting.table), setting.section, setting.list, size,
      labels.empty() ? "" : " (" + join(labels, ", ") + ")");
}

void apply_to_table(const Setting& setting, const ConfigSection& section,
                    const std::vector<ConfigSection>& sections, RunConfig& config) {
  const TableList* list = find_named(section.lists, setting.list);
  if (list == nullptr) {
    std::vector<std::string> lists;
    for (const ConfigSection& other : sections) {
      for (const TableList& known : other.lists) {
        lists.push_back(fmt::format("[[{}.{}]]", other.name, known.name));
      }
    }
    throw Error("{}: [{}] has no list of tables {}; lists are {}", setting.where, section.name,
                in_quotes(setting.list), join(lists, ", "));
  }
  if (setting.table.empty()) {
    clear_list(section.name, *list, config);
    return;
  }
  const size_t table = table_number(setting, *list, config);
  if (table == list->size(config)) list->resize(config, table + 1);
  if (setting.key.empty()) return;  // a table without keys has the defaults
  const std::vector<Key> keys = list->keys(table);
  const Key* key = find_named(keys, setting.key);
  if (key == nullptr) {
    refuse_key(setting, fmt::format("[[{}.{}]]", section.name, list->name), names_of(keys),
               sections);
  }
  apply_value(setting, fmt::format("{}.{}.{}.{}", section.name, list->name, table, key->name), *key,
              config);
}

void apply(const Setting& setting, const std::vector<ConfigSection>& sections, RunConfig& config) {
  const ConfigSection& section = find_section(setting, sections);
  if (!setting.list.empty()) {
    apply_to_table(setting, section, sections, config);
    return;
  }
  if (setting.key.empty()) return;  // a section without keys changes nothing
  if (const TableList* list = find_named(section.lists, setting.key); list != nullptr) {
    if (setting.value != ConfigValue(std::vector<std::string>())) {
      throw Error("{}: {}.{}: found {}; expected tables, each begun by [[{}.{}]]", setting.where,
                  section.name, list->name, value_text(setting.value), section.name, list->name);
    }
    clear_list(section.name, *list, config);
    return;
  }
  const Key* key = find_named(section.keys, setting.key);
  if (key == nullptr) {
    std::vector<std::string> known = names_of(section.keys);
    std::ranges::move(names_of(section.lists), std::back_inserter(known));
    refuse_key(setting, "[" + section.name + "]", known, sections);
  }
  apply_value(setting, section.name + "." + key->name, *key, config);
}

/// Returns whether the starting values of [model] depend on the setting.
bool decides_model(const Setting& setting) {
  return (setting.section == "model" && setting.key == "family") ||
         (setting.section == "checkpoint" && setting.key == "initial") ||
         (setting.section == "run" && setting.key == "directory");
}

bool adds_table(const Setting& setting, std::string_view section, std::string_view list) {
  return setting.section == section && setting.list == list && !setting.table.empty();
}

/// Returns the steps of a run that leaves train.steps out: the sum of its phases, or the default.
int64_t default_steps(const RunConfig& config) {
  return config.train.phases.empty() ? TrainSection().steps : phases_of(config).back().last_step;
}

/// Returns the configuration of a text and of overrides, before validate().
RunConfig apply_settings(std::string_view text, const std::string& name,
                         std::span<const std::string> overrides,
                         const InitialModel& initial_model) {
  std::vector<Setting> settings = settings_of_text(text, name);
  for (const std::string& text_of_override : overrides) {
    std::ranges::move(settings_of_override(text_of_override), std::back_inserter(settings));
  }
  std::erase_if(settings, is_neutral_absent_key);

  const std::vector<ConfigSection> sections = all_sections();
  RunConfig config;
  // First apply the settings that decide the starting values of [model].
  for (const Setting& setting : settings) {
    if (decides_model(setting)) apply(setting, sections, config);
  }
  config.model = initial_model && !config.checkpoint.initial.empty()
                     ? initial_model(config)
                     : family_preset(config.model.family);
  // A mix of sources replaces data.directory, which has a default.
  const auto any_adds = [&](std::string_view section, std::string_view list) {
    return std::ranges::any_of(
        settings, [&](const Setting& setting) { return adds_table(setting, section, list); });
  };
  if (any_adds("data", "sources")) config.data.directory.clear();
  // Phases replace train.steps. 0 marks it as left out: no file can set it to 0.
  if (any_adds("train", "phases")) config.train.steps = 0;
  for (const Setting& setting : settings) apply(setting, sections, config);
  if (config.train.steps == 0) config.train.steps = default_steps(config);
  if (!config.given.contains("parallel.virtual_stages")) {
    config.parallel.virtual_stages = default_virtual_stages(config.parallel);
  }
  config.file = name;
  return config;
}

/// Calls validate() for a configuration or a part of it. An error begins with the file's name.
template <typename Part>
void validate_for(const std::string& name, const Part& part) {
  try {
    validate(part);
  } catch (const Error& error) {
    throw Error("{}: {}", name, error.what());
  }
}

}  // namespace

RunConfig parse_config(std::string_view text, const std::string& name,
                       std::span<const std::string> overrides, const InitialModel& initial_model) {
  RunConfig config = apply_settings(text, name, overrides, initial_model);
  validate_for(name, config);
  return config;
}

ParallelSection parse_parallel(std::string_view text, const std::string& name,
                               std::span<const std::string> overrides) {
  ParallelSection parallel = apply_settings(text, name, overrides, nullptr).parallel;
  validate_for(name, parallel);
  return parallel;
}

RunConfig load_config(const fs::path& path, std::span<const std::string> overrides,
                      const InitialModel& initial_model) {
  return parse_config(read_file(path), path.string(), overrides, initial_model);
}

}  // namespace tessera
