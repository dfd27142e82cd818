#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/words.h"
#include "config/rule.h"
#include "config/run_config.h"

namespace tessera {

// The schema of a configuration file: its sections and their keys. SectionWriter declares a section
// (see config/sections/). A key connects its name and rule with the field of RunConfig that it
// sets.

struct Circumstances;

/// The condition under which a key has an effect (see config/effects.h).
struct Effect {
  /// Returns why the key has no effect, such as "optimizer.name is \"adamw\""; empty if it has one.
  using WhyNone = std::string (*)(const Circumstances&);
  WhyNone why_none;
  /// The value that asks for nothing. A key with this value gets no message if it has no effect.
  std::optional<ConfigValue> neutral = {};
};

/// One key of a section: its name, the rule for its value, the condition of its effect, its purpose
/// and the field that it fills. Parsing, defaults, errors, printing and help all read this.
struct Key {
  std::string name;
  Rule rule;
  Effect effect;
  std::string help;
  std::function<ConfigValue(const RunConfig&)> get;
  /// Sets the field to a value that checked_value() returned.
  std::function<void(RunConfig&, const ConfigValue&)> set;
};

/// Returns the item (a key, a list, a section) of that name, or null.
template <typename Named>
const Named* find_named(const std::vector<Named>& items, std::string_view name) {
  const auto found = std::ranges::find(items, name, &Named::name);
  return found == items.end() ? nullptr : &*found;
}

/// The tables [[section.name]] of a section. There may be any number of them, all with the same
/// keys.
struct TableList {
  std::string name;
  std::string help;
  /// Returns keys that read and write the table of that number.
  std::function<std::vector<Key>(size_t table)> keys;
  /// Returns the name of a table in overrides. Its number works too.
  std::function<std::string(const RunConfig&, size_t table)> label;
  std::function<size_t(const RunConfig&)> size;
  std::function<void(RunConfig&, size_t)> resize;
};

/// One section of the file. The keys are in the order in which they are printed; the lists of
/// tables follow them.
struct ConfigSection {
  std::string name;
  std::string help;
  std::vector<Key> keys;
  std::vector<TableList> lists;
};

/// Converts a field to a ConfigValue and back. Most fields stay as they are. Unsigned numbers
/// become whole numbers, enums become their words.
template <typename Field>
struct Stored {
  static ConfigValue to_value(const Field& field) { return field; }
  static Field to_field(const ConfigValue& value) { return std::get<Field>(value); }
};
template <>
struct Stored<uint64_t> {
  static ConfigValue to_value(uint64_t field) { return static_cast<int64_t>(field); }
  static uint64_t to_field(const ConfigValue& value) {
    return static_cast<uint64_t>(std::get<int64_t>(value));
  }
};
template <Worded Enum>
struct Stored<Enum> {
  static ConfigValue to_value(Enum field) { return std::string(word(field)); }
  static Enum to_field(const ConfigValue& value) {
    return from_word<Enum>(std::get<std::string>(value));
  }
};
/// The field of a key that may be left out. The key then has an OtherValue, which no rule accepts.
template <typename Field>
struct Stored<std::optional<Field>> {
  static ConfigValue to_value(const std::optional<Field>& field) {
    return field ? Stored<Field>::to_value(*field) : ConfigValue(OtherValue{"left out"});
  }
  static std::optional<Field> to_field(const ConfigValue& value) {
    return Stored<Field>::to_field(value);
  }
};
template <Worded Enum>
struct Stored<std::vector<Enum>> {
  static ConfigValue to_value(const std::vector<Enum>& field) {
    std::vector<std::string> words;
    for (const Enum value : field) words.emplace_back(word(value));
    return words;
  }
  static std::vector<Enum> to_field(const ConfigValue& value) {
    std::vector<Enum> values;
    for (const std::string& text : std::get<std::vector<std::string>>(value)) {
      values.push_back(from_word<Enum>(text));
    }
    return values;
  }
};

/// Makes keys for the fields of a struct, a section's or a table's, anywhere in a RunConfig.
template <typename Fields>
class KeyWriter {
 public:
  /// `fields` returns the struct in a RunConfig, const or not.
  template <typename Access>
  explicit KeyWriter(Access fields) : fields_(fields), const_fields_(fields) {}

  /// Adds the key of a field (see Stored).
  template <typename Field>
  KeyWriter& key(std::string name, Field Fields::*field, Rule rule, Effect effect,
                 std::string help) {
    section_.keys.push_back(
        {std::move(name), std::move(rule), std::move(effect), std::move(help),
         [fields = const_fields_, field](const RunConfig& config) -> ConfigValue {
           return Stored<Field>::to_value(fields(config).*field);
         },
         [fields = fields_, field](RunConfig& config, const ConfigValue& value) {
           fields(config).*field = Stored<Field>::to_field(value);
         }});
    return *this;
  }

  const ConfigSection& section() const { return section_; }

 protected:
  ConfigSection section_;

 private:
  std::function<Fields&(RunConfig&)> fields_;
  std::function<const Fields&(const RunConfig&)> const_fields_;
};

/// Writes a section: its lists of tables, and then a key for each field of the section's struct.
template <typename Fields>
class SectionWriter : public KeyWriter<Fields> {
 public:
  SectionWriter(const std::string& name, Fields RunConfig::*section_field, const std::string& help)
      : KeyWriter<Fields>([section_field](auto& config) -> auto& { return config.*section_field; }),
        section_field_(section_field) {
    this->section_.name = name;
    this->section_.help = help;
  }

  /// Adds a list of tables. `write_keys` adds the keys of one table; `label` returns its name.
  template <typename Table>
  SectionWriter& list(const std::string& name, std::vector<Table> Fields::*tables,
                      void (*write_keys)(KeyWriter<Table>&), std::string (*label)(const Table&),
                      const std::string& help) {
    const auto tables_of = [ section_field = section_field_, tables ](auto& config) -> auto& {
      return (config.*section_field).*tables;
    };
    this->section_.lists.push_back(
        {name, help,
         [tables_of, write_keys](size_t table) {
           KeyWriter<Table> writer([=](auto& config) -> auto& {
             return tables_of(config).at(table);
           });
           write_keys(writer);
           return writer.section().keys;
         },
         [tables_of, label](const RunConfig& config, size_t table) {
           return label(tables_of(config).at(table));
         },
         [tables_of](const RunConfig& config) { return tables_of(config).size(); },
         [tables_of](RunConfig& config, size_t size) { tables_of(config).resize(size); }});
    return *this;
  }

 private:
  Fields RunConfig::*section_field_;
};

}  // namespace tessera
