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

/// The condition under which a key has an effect (see effects.h).
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
  static ConfigValue of(const Field& field) { return field; }
  static Field field(const ConfigValue& value) { return std::get<Field>(value); }
};
template <>
struct Stored<uint64_t> {
  static ConfigValue of(uint64_t field) { return static_cast<int64_t>(field); }
  static uint64_t field(const ConfigValue& value) {
    return static_cast<uint64_t>(std::get<int64_t>(value));
  }
};
template <Worded Enum>
struct Stored<Enum> {
  static ConfigValue of(Enum field) { return std::string(word(field)); }
  static Enum field(const ConfigValue& value) {
    return from_word<Enum>(std::get<std::string>(value));
  }
};
/// The field of a key that may be left out. The key then has an OtherValue, which no rule accepts.
template <typename Field>
struct Stored<std::optional<Field>> {
  static ConfigValue of(const std::optional<Field>& field) {
    return field ? Stored<Field>::of(*field) : ConfigValue(OtherValue{"left out"});
  }
  static std::optional<Field> field(const ConfigValue& value) {
    return Stored<Field>::field(value);
  }
};
template <Worded Enum>
struct Stored<std::vector<Enum>> {
  static ConfigValue of(const std::vector<Enum>& field) {
    std::vector<std::string> words;
    for (const Enum value : field) words.emplace_back(word(value));
    return words;
  }
  static std::vector<Enum> field(const ConfigValue& value) {
    std::vector<Enum> values;
    for (const std::string& text : std::get<std::vector<std::string>>(value)) {
      values.push_back(from_word<Enum>(text));
    }
    return values;
  }
};

/// Makes keys for the fields of a struct. The struct may be anywhere in a RunConfig.
template <typename Fields>
class KeyWriter {
 public:
  using Access = std::function<Fields&(RunConfig&)>;
  using ConstAccess = std::function<const Fields&(const RunConfig&)>;

  KeyWriter(Access fields, ConstAccess const_fields)
      : fields_(std::move(fields)), const_fields_(std::move(const_fields)) {}

  /// Adds the key of a field (see Stored).
  template <typename Field>
  KeyWriter& key(std::string name, Field Fields::*field, Rule rule, Effect effect,
                 std::string help) {
    keys_.push_back({std::move(name), std::move(rule), std::move(effect), std::move(help),
                     [fields = const_fields_, field](const RunConfig& config) -> ConfigValue {
                       return Stored<Field>::of(fields(config).*field);
                     },
                     [fields = fields_, field](RunConfig& config, const ConfigValue& value) {
                       fields(config).*field = Stored<Field>::field(value);
                     }});
    return *this;
  }

  const std::vector<Key>& keys() const { return keys_; }

 private:
  Access fields_;
  ConstAccess const_fields_;
  std::vector<Key> keys_;
};

/// Writes a section: each call adds a key for a field of the section's struct, or a list of tables.
template <typename Fields>
class SectionWriter {
 public:
  SectionWriter(std::string name, Fields RunConfig::*section_field, std::string help)
      : section_{std::move(name), std::move(help), {}, {}},
        section_field_(section_field),
        keys_([section_field](RunConfig& config) -> Fields& { return config.*section_field; },
              [section_field](const RunConfig& config) -> const Fields& {
                return config.*section_field;
              }) {}

  /// See KeyWriter::key().
  template <typename Field>
  SectionWriter& key(std::string name, Field Fields::*field, Rule rule, Effect effect,
                     std::string help) {
    keys_.key(std::move(name), field, std::move(rule), std::move(effect), std::move(help));
    return *this;
  }

  /// Adds a list of tables. `write_keys` adds the keys of one table; `label` returns its name.
  template <typename Table>
  SectionWriter& list(std::string name, std::vector<Table> Fields::*tables,
                      void (*write_keys)(KeyWriter<Table>&), std::string (*label)(const Table&),
                      std::string help) {
    const auto keys = [section_field = section_field_, tables, write_keys](size_t table) {
      KeyWriter<Table> writer(
          [=](RunConfig& config) -> Table& { return ((config.*section_field).*tables).at(table); },
          [=](const RunConfig& config) -> const Table& {
            return ((config.*section_field).*tables).at(table);
          });
      write_keys(writer);
      return writer.keys();
    };
    section_.lists.push_back(
        {std::move(name), std::move(help), keys,
         [section_field = section_field_, tables, label](const RunConfig& config, size_t table) {
           return label(((config.*section_field).*tables).at(table));
         },
         [section_field = section_field_, tables](const RunConfig& config) {
           return ((config.*section_field).*tables).size();
         },
         [section_field = section_field_, tables](RunConfig& config, size_t size) {
           ((config.*section_field).*tables).resize(size);
         }});
    return *this;
  }

  ConfigSection section() const {
    ConfigSection result = section_;
    result.keys = keys_.keys();
    return result;
  }

 private:
  ConfigSection section_;
  Fields RunConfig::*section_field_;
  KeyWriter<Fields> keys_;
};

}  // namespace tessera
