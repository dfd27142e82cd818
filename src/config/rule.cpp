// Visitors of the kinds of values and rules do the work: ValueText and RuleText return texts, and
// Checker returns the accepted value or throws Error.

#include "config/rule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {
namespace {

/// Returns the text as a basic string of TOML.
std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      result += '\\';
      result += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(letter));
    } else {
      result += letter;
    }
  }
  return result + '"';
}

std::string quote_all(const std::vector<std::string>& names) {
  std::vector<std::string> quoted(names.size());
  std::ranges::transform(names, quoted.begin(), quote);
  return join(quoted, ", ");
}

/// Returns the shortest digits that read back to the same number. A whole number gets ".0".
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

struct ValueText {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const std::string& value) const { return quote(value); }
  std::string operator()(const std::vector<std::string>& value) const {
    return fmt::format("[{}]", quote_all(value));
  }
  std::string operator()(const std::vector<int64_t>& value) const {
    return fmt::format("[{}]", fmt::join(value, ", "));
  }
  std::string operator()(const OtherValue& value) const { return value.description; }
};

struct RuleText {
  std::string operator()(const FlagRule&) const { return "true or false"; }

  std::string operator()(const IntegerRule& rule) const {
    const bool bounded = rule.maximum != IntegerRule{}.maximum;
    if (bounded) return fmt::format("a whole number from {} to {}", rule.minimum, rule.maximum);
    return fmt::format("a whole number of at least {}", rule.minimum);
  }

  std::string operator()(const NumberRule& rule) const {
    if (rule.least_above_zero > 0) {
      return fmt::format("0 or a number from {} to {}", rule.least_above_zero, rule.maximum);
    }
    std::string text = fmt::format("a number {} {}",
                                   rule.excludes_minimum ? "above" : "of at least", rule.minimum);
    if (rule.maximum != NumberRule{}.maximum) {
      text += fmt::format(" and {} {}", rule.excludes_maximum ? "below" : "at most", rule.maximum);
    }
    return text;
  }

  std::string operator()(const TextRule& rule) const {
    if (rule.choices.empty()) return "a text";
    if (rule.choices.size() == 1) return quote(rule.choices[0]);
    return "one of " + quote_all(rule.choices);
  }

  std::string operator()(const ListRule& rule) const {
    return rule.choices.empty() ? "a list of texts" : "a list of " + quote_all(rule.choices);
  }

  std::string operator()(const NumbersRule& rule) const {
    return fmt::format("a list of whole numbers from {} to {}{}{}", rule.minimum, rule.maximum,
                       rule.words.empty() ? "" : ", or ", quote_all(rule.words));
  }

  std::string operator()(const BytesRule&) const {
    return "a number of bytes with its unit, such as \"512 MiB\"";
  }

  std::string operator()(const NumberOrTextRule& rule) const {
    return fmt::format("{}, or {}", rule.texts,
                       (*this)(IntegerRule{.minimum = rule.minimum, .maximum = rule.maximum}));
  }
};

/// Returns a hint that names the choice with the most similar name; empty if none is similar.
std::string suggestion(const std::string& name, const std::vector<std::string>& choices) {
  const std::string nearest = nearest_name(name, choices);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", quote(nearest));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_within(const NumberRule& rule, double value) {
  return std::isfinite(value) && value >= rule.minimum && value <= rule.maximum &&
         !(rule.excludes_minimum && value == rule.minimum) &&
         !(rule.excludes_maximum && value == rule.maximum);
}

/// Returns the number in f32, as kernels read it: they treat subnormal numbers as 0.
double rounded_to_f32(double value) {
  const auto rounded = static_cast<float>(value);
  return std::fpclassify(rounded) == FP_SUBNORMAL ? 0.0 : static_cast<double>(rounded);
}

/// Checks a value against each kind of rule.
struct Checker {
  const ConfigValue& value;

  [[noreturn]] void refuse(const Rule& rule, std::string_view hint = "") const {
    throw Error("found {}; expected {}{}", printable(value_text(value)), rule_text(rule), hint);
  }

  ConfigValue operator()(const FlagRule& rule) const {
    if (!std::holds_alternative<bool>(value)) refuse(rule);
    return value;
  }

  ConfigValue operator()(const IntegerRule& rule) const {
    const auto* found = std::get_if<int64_t>(&value);
    if (found == nullptr || *found < rule.minimum || *found > rule.maximum) refuse(rule);
    return value;
  }

  ConfigValue operator()(const NumberRule& rule) const {
    double found = 0;
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      found = static_cast<double>(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      found = *number;
    } else {
      refuse(rule);
    }
    if (!is_within(rule, found)) refuse(rule);
    if (found != 0 && found < rule.least_above_zero) refuse(rule);
    const double used = rule.is_f32 ? rounded_to_f32(found) : found;
    // An end of the range itself is accepted, even if f32 rounds it out of the range.
    if (found != rule.minimum && found != rule.maximum && !is_within(rule, used)) {
      refuse(rule, fmt::format("; fp32, in which it is used, rounds it to {}", used));
    }
    if (used == 0 && found != 0) {
      refuse(rule, "; fp32, in which it is used, rounds it to 0");
    }
    return found;
  }

  ConfigValue operator()(const TextRule& rule) const {
    const auto* found = std::get_if<std::string>(&value);
    if (found == nullptr) refuse(rule);
    if (rule.choices.empty() && found->empty() && !rule.may_be_empty)
      refuse(rule, ", not an empty one");
    if (found->find('\0') != std::string::npos) refuse(rule, " without the character 0");
    if (rule.choices.empty() || contains(rule.choices, *found)) return value;
    if (contains(rule.absent, *found)) {
      throw Error("{} is not in this build; it has {}", quote(*found), quote_all(rule.choices));
    }
    refuse(rule, suggestion(*found, rule.choices));
  }

  ConfigValue operator()(const ListRule& rule) const {
    const auto* found = std::get_if<std::vector<std::string>>(&value);
    if (found == nullptr) refuse(rule);
    for (const std::string& name : *found) {
      if (rule.choices.empty()) {
        if (name.empty()) refuse(rule, ", none of them empty");
      } else if (!contains(rule.choices, name)) {
        refuse(rule, suggestion(name, rule.choices));
      }
    }
    const std::set<std::string> distinct(found->begin(), found->end());
    if (distinct.size() != found->size()) refuse(rule, ", each at most once");
    return value;
  }

  ConfigValue operator()(const NumbersRule& rule) const {
    if (const auto* word = std::get_if<std::string>(&value)) {
      if (contains(rule.words, *word)) return value;
      refuse(rule, suggestion(*word, rule.words));
    }
    // An empty array has no type.
    if (value == ConfigValue(std::vector<std::string>())) return std::vector<int64_t>();
    const auto* found = std::get_if<std::vector<int64_t>>(&value);
    if (found == nullptr) refuse(rule);
    const bool within = std::ranges::all_of(
        *found, [&](int64_t number) { return number >= rule.minimum && number <= rule.maximum; });
    if (!within) refuse(rule);
    return value;
  }

  ConfigValue operator()(const BytesRule& rule) const {
    const auto* const text = std::get_if<std::string>(&value);
    const std::optional<int64_t> bytes = text != nullptr ? bytes_of_text(*text) : std::nullopt;
    if (!bytes) refuse(rule);
    return bytes_text(*bytes);
  }

  ConfigValue operator()(const NumberOrTextRule& rule) const {
    if (const auto* number = std::get_if<int64_t>(&value)) {
      if (*number < rule.minimum || *number > rule.maximum) refuse(rule);
      return value;
    }
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || text->empty() || text->find('\0') != std::string::npos) refuse(rule);
    return value;
  }
};

}  // namespace

namespace {

constexpr std::array<std::pair<std::string_view, int64_t>, 5> kByteUnits{{
    {"TiB", int64_t{1} << 40},
    {"GiB", int64_t{1} << 30},
    {"MiB", int64_t{1} << 20},
    {"KiB", int64_t{1} << 10},
    {"B", 1},
}};

}  // namespace

std::string bytes_text(int64_t bytes) {
  if (bytes == 0) return "0";
  const auto unit = std::ranges::find_if(
      kByteUnits, [&](const auto& known) { return bytes % known.second == 0; });
  return fmt::format("{} {}", bytes / unit->second, unit->first);
}

std::optional<int64_t> bytes_of_text(std::string_view text) {
  if (text == "0") return 0;
  constexpr int64_t kMost = int64_t{1} << 60;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return {};
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, bytes] : kByteUnits) {
    if (unit == name) return number < kMost / bytes ? std::optional(number * bytes) : std::nullopt;
  }
  return {};
}

std::string value_text(const ConfigValue& value) { return std::visit(ValueText{}, value); }

std::string rule_text(const Rule& rule) { return std::visit(RuleText{}, rule); }

ConfigValue checked_value(const Rule& rule, const ConfigValue& value) {
  return std::visit(Checker{value}, rule);
}

}  // namespace tessera
