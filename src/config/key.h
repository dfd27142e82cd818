#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// A value as a configuration file can hold it that no key takes: a table, a date, an array that
/// does not hold texts. `description` says which.
struct OtherValue {
  std::string description;
  bool operator==(const OtherValue&) const = default;
};

/// The value of one key.
using ConfigValue =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>, OtherValue>;

/// In TOML: `0.1`, `"adamw"`, `["norm", "experts"]`. The text of an OtherValue is its description.
std::string value_text(const ConfigValue& value);

/// The rules that a key's value obeys, which also give its type.
struct FlagRule {};
struct IntegerRule {
  int64_t minimum = std::numeric_limits<int64_t>::min();
  int64_t maximum = std::numeric_limits<int64_t>::max();
};
/// Whole numbers are taken as well. NaN and infinities never are.
struct NumberRule {
  double minimum = std::numeric_limits<double>::lowest();
  double maximum = std::numeric_limits<double>::max();
  bool excludes_minimum = false;
  bool excludes_maximum = false;
};
/// One of `choices`, or any text but the empty one where there are none. `absent` are names that
/// the documentation of Tessera knows and that this build has not: their error says so.
struct TextRule {
  std::vector<std::string> choices;
  std::vector<std::string> absent;
};
/// Any number of different `choices`.
struct ListRule {
  std::vector<std::string> choices;
};
using Rule = std::variant<FlagRule, IntegerRule, NumberRule, TextRule, ListRule>;

/// What a rule accepts: "a whole number, at least 1", "one of "cosine", "linear"".
std::string rule_text(const Rule& rule);

/// Gives `value` in the type of the rule's key, or throws Error saying what was found and what was
/// expected.
ConfigValue checked_value(const Rule& rule, const ConfigValue& value);

/// One key of a section: what it is called, what it accepts, what it is for, and the field that it
/// fills. Parsing, defaults, errors, printing and help all read this.
struct Key {
  std::string name;
  Rule rule;
  std::string help;
  std::function<ConfigValue(const RunConfig&)> get;
  /// Takes what checked_value() gave.
  std::function<void(RunConfig&, const ConfigValue&)> set;
};

/// One section of the file, its keys in the order in which they are printed.
struct Section {
  std::string name;
  std::string help;
  std::vector<Key> keys;

  /// The key of that name, or null.
  const Key* find(std::string_view key) const;
};

/// The range of a whole number.
inline IntegerRule at_least(int64_t minimum) { return {minimum}; }
inline IntegerRule whole(int64_t minimum, int64_t maximum) { return {minimum, maximum}; }
/// The range of a number.
inline NumberRule number_at_least(double minimum) { return {.minimum = minimum}; }
inline NumberRule number_above(double minimum) {
  return {.minimum = minimum, .excludes_minimum = true};
}

/// Writes a section's keys: each call adds one for a field of the section's struct.
template <typename Fields>
class SectionWriter {
 public:
  SectionWriter(std::string name, Fields RunConfig::*part, std::string help)
      : section_{std::move(name), std::move(help), {}}, part_(part) {}

  /// A field of one of ConfigValue's types, or an unsigned number that the file gives as a whole
  /// number.
  template <typename Field>
  SectionWriter& key(std::string name, Field Fields::*field, Rule rule, std::string help) {
    using Stored = std::conditional_t<std::is_same_v<Field, uint64_t>, int64_t, Field>;
    section_.keys.push_back({std::move(name), std::move(rule), std::move(help),
                             [part = part_, field](const RunConfig& config) -> ConfigValue {
                               return static_cast<Stored>((config.*part).*field);
                             },
                             [part = part_, field](RunConfig& config, const ConfigValue& value) {
                               (config.*part).*field = static_cast<Field>(std::get<Stored>(value));
                             }});
    return *this;
  }

  Section section() const { return section_; }

 private:
  Section section_;
  Fields RunConfig::*part_;
};

}  // namespace tessera
