#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/words.h"
#include "config/run_config.h"

namespace tessera {

/// A value of a configuration file that no key takes: a table, a date, or an array that does not
/// hold texts only. `description` says which of them.
struct OtherValue {
  std::string description;
  bool operator==(const OtherValue&) const = default;
};

/// The value of one key.
using ConfigValue =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>, OtherValue>;

/// Returns the value as TOML: `0.1`, `"adamw"`, `["norm", "experts"]`. The text of an OtherValue is
/// its description.
std::string value_text(const ConfigValue& value);

/// The rules for a key's value. The rule also gives the value's type.
struct FlagRule {};
struct IntegerRule {
  int64_t minimum = std::numeric_limits<int64_t>::min();
  int64_t maximum = std::numeric_limits<int64_t>::max();
};
/// Accepts whole numbers too. Never accepts NaN or infinities. A number that is used in f32 must
/// still be in the range after it is rounded to f32.
struct NumberRule {
  double minimum = std::numeric_limits<double>::lowest();
  double maximum = std::numeric_limits<double>::max();
  bool excludes_minimum = false;
  bool excludes_maximum = false;
  bool single = false;          ///< true if it is used in f32
  double least_above_zero = 0;  ///< smaller numbers are accepted only if they are 0
};
/// Accepts one of `choices`. Without choices, accepts any text; the empty text only if
/// `may_be_empty`. `absent` holds names that Tessera's documentation knows but this build does not
/// have. The error for such a name says so.
struct TextRule {
  std::vector<std::string> choices;
  std::vector<std::string> absent;
  bool may_be_empty = false;  ///< for a rule without choices
};
/// Accepts any number of different `choices`; without choices, of texts that are not empty.
struct ListRule {
  std::vector<std::string> choices;
};
/// Returns the rules for one word of an enum, and for a list of its words.
template <Worded Enum>
TextRule word_rule(const std::vector<std::string>& absent = {}) {
  return {.choices = words_of<Enum>(), .absent = absent};
}
template <Worded Enum>
ListRule word_list_rule() {
  return {words_of<Enum>()};
}
using Rule = std::variant<FlagRule, IntegerRule, NumberRule, TextRule, ListRule>;

/// Returns what a rule accepts: "a whole number, at least 1", "one of "cosine", "linear"".
std::string rule_text(const Rule& rule);

/// Returns `value` in the type of the rule's key. Throws Error that says what was found and what
/// was expected.
ConfigValue checked_value(const Rule& rule, const ConfigValue& value);

struct Circumstances;

/// The condition under which a key has an effect. See effects.h.
struct Effect {
  /// Returns why the key's present value has no effect: "optimizer.name is \"adamw\"". Empty if it
  /// has one.
  using WhyNone = std::string (*)(const Circumstances&);
  WhyNone why_none;
  /// The value that asks for nothing. With this value, the lack of an effect needs no message.
  std::optional<ConfigValue> neutral = {};
};

/// One key of a section: its name, what it accepts, when it has an effect, its purpose, and the
/// field that it fills. Parsing, defaults, errors, printing and help all read this.
struct Key {
  std::string name;
  Rule rule;
  Effect effect;
  std::string help;
  std::function<ConfigValue(const RunConfig&)> get;
  /// Sets the field to a value that checked_value() returned.
  std::function<void(RunConfig&, const ConfigValue&)> set;
};

/// Returns the key of that name, or null.
const Key* find_key(const std::vector<Key>& keys, std::string_view name);

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

  /// Returns the key or the list of that name, or null.
  const Key* find(std::string_view key) const { return find_key(keys, key); }
  const TableList* find_list(std::string_view list) const;
};

/// Returns the range of a whole number.
inline IntegerRule at_least(int64_t minimum) { return {minimum}; }
inline IntegerRule whole(int64_t minimum, int64_t maximum) { return {minimum, maximum}; }
/// Returns the range of a number that is used in f64, and of one that is used in f32.
inline NumberRule between(double minimum, double maximum) { return {minimum, maximum}; }
inline NumberRule single_between(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum, .single = true};
}
/// Returns the range of a number that is 0 or at least `minimum`, and of one above 0 that is used
/// in f32.
inline NumberRule zero_or_between(double minimum, double maximum) {
  return {.minimum = 0, .maximum = maximum, .least_above_zero = minimum};
}
inline NumberRule single_above_zero(double maximum) {
  return {.minimum = 0, .maximum = maximum, .excludes_minimum = true, .single = true};
}

// Bounds far beyond any run, so that products and sums of values within them do not overflow.
inline constexpr int64_t kMostSteps = int64_t{1} << 40;
inline constexpr double kLeastSourceWeight = 1e-30;
inline constexpr double kMostWeight = 1e6;  // of losses, rates and deviations
inline constexpr double kMostNumber = 1e30;

/// The conversion of a field to and from a ConfigValue. Most fields stay as they are. Unsigned
/// numbers become whole numbers, enums become their words.
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
/// A field that may be left out. If it is, its value is an OtherValue, which no file holds.
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

/// Makes keys for the fields of a struct, which may be anywhere in a RunConfig.
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
  SectionWriter(std::string name, Fields RunConfig::*part, std::string help)
      : section_{std::move(name), std::move(help), {}, {}},
        part_(part),
        keys_([part](RunConfig& config) -> Fields& { return config.*part; },
              [part](const RunConfig& config) -> const Fields& { return config.*part; }) {}

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
    const auto keys = [part = part_, tables, write_keys](size_t table) {
      KeyWriter<Table> writer(
          [=](RunConfig& config) -> Table& { return ((config.*part).*tables).at(table); },
          [=](const RunConfig& config) -> const Table& {
            return ((config.*part).*tables).at(table);
          });
      write_keys(writer);
      return writer.keys();
    };
    section_.lists.push_back({std::move(name), std::move(help), keys,
                              [part = part_, tables, label](const RunConfig& config, size_t table) {
                                return label(((config.*part).*tables).at(table));
                              },
                              [part = part_, tables](const RunConfig& config) {
                                return ((config.*part).*tables).size();
                              },
                              [part = part_, tables](RunConfig& config, size_t size) {
                                ((config.*part).*tables).resize(size);
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
  Fields RunConfig::*part_;
  KeyWriter<Fields> keys_;
};

}  // namespace tessera
