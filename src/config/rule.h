#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/words.h"

namespace tessera {

/// A value of a configuration file that no key takes: a table, a date, or an array that holds
/// neither texts only nor whole numbers only. `description` says what it is.
struct OtherValue {
  std::string description;
  bool operator==(const OtherValue&) const = default;
};

/// The value of one key.
using ConfigValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>,
                                 std::vector<int64_t>, OtherValue>;

/// Returns the value as TOML: `0.1`, `"adamw"`, `["norm", "experts"]`, `[3, 4]`. The text of an
/// OtherValue is its description.
std::string value_text(const ConfigValue& value);

// The rules for a key's value. The kind of a rule also decides the type of the value.

/// Accepts true and false.
struct FlagRule {};
/// Accepts whole numbers in a range that includes both ends.
struct IntegerRule {
  int64_t minimum = std::numeric_limits<int64_t>::min();
  int64_t maximum = std::numeric_limits<int64_t>::max();
};
/// Accepts finite numbers in a range, whole ones too. A number that is used in f32 must still be in
/// the range when it is rounded to f32, unless it is an end of the range. Only 0 may become 0.
struct NumberRule {
  double minimum = std::numeric_limits<double>::lowest();
  double maximum = std::numeric_limits<double>::max();
  bool excludes_minimum = false;
  bool excludes_maximum = false;
  bool is_f32 = false;          ///< true if the number is used in f32
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
/// Accepts a list of different `choices`. Without choices, accepts different texts, none empty.
struct ListRule {
  std::vector<std::string> choices;
};
/// Accepts a list of whole numbers in a range that includes both ends, or one of `words`.
struct NumbersRule {
  int64_t minimum = 0;
  int64_t maximum = 0;
  std::vector<std::string> words;
};
/// Accepts a whole number in a range that includes both ends, or a text, which is checked where it
/// is used. `texts` says which texts there are.
struct NumberOrTextRule {
  int64_t minimum = 0;
  int64_t maximum = 0;
  std::string texts;
};
/// Accepts a number of bytes as a text, such as "512 MiB": a whole number and one of the units B,
/// KiB, MiB, GiB and TiB, or "0".
struct BytesRule {};

/// Returns the text of so many bytes, in the largest unit of which they are a whole number.
std::string bytes_text(int64_t bytes);
/// Returns the bytes of such a text; none if it is no such text, or if they are 2^60 or more.
std::optional<int64_t> bytes_of_text(std::string_view text);

/// Return the rules for one word of an enum and for a list of its words (for `absent`, see
/// TextRule).
template <Worded Enum>
TextRule word_rule(const std::vector<std::string>& absent = {}) {
  return {.choices = words_of<Enum>(), .absent = absent};
}
template <Worded Enum>
ListRule word_list_rule() {
  return {words_of<Enum>()};
}
using Rule = std::variant<FlagRule, IntegerRule, NumberRule, TextRule, ListRule, NumbersRule,
                          NumberOrTextRule, BytesRule>;

/// Returns what a rule accepts: `a whole number of at least 1`, `one of "cosine", "linear"`.
std::string rule_text(const Rule& rule);

/// Returns `value` in the type of the rule's key. Throws Error that says what was found and what
/// was expected.
ConfigValue checked_value(const Rule& rule, const ConfigValue& value);

// Short forms of rules.

/// Return the range of a whole number.
inline IntegerRule at_least(int64_t minimum) { return {minimum}; }
inline IntegerRule whole(int64_t minimum, int64_t maximum) { return {minimum, maximum}; }
/// Return the range of a number that is used in f64, and of one that is used in f32.
inline NumberRule between(double minimum, double maximum) { return {minimum, maximum}; }
inline NumberRule f32_between(double minimum, double maximum) {
  return {.minimum = minimum, .maximum = maximum, .is_f32 = true};
}
/// Returns the range of a number that is 0 or at least `minimum`.
inline NumberRule zero_or_between(double minimum, double maximum) {
  return {.minimum = 0, .maximum = maximum, .least_above_zero = minimum};
}
/// Returns the range of a number above 0 that is used in f32.
inline NumberRule f32_above_zero(double maximum) {
  return {.minimum = 0, .maximum = maximum, .excludes_minimum = true, .is_f32 = true};
}

// Bounds far beyond any run, so that products and sums of values within them do not overflow.
inline constexpr int64_t kMaxContext = int64_t{1} << 24;  // tokens of a sequence
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;
inline constexpr int64_t kMaxCount = 1 << 16;        // of layers, heads, experts
inline constexpr int64_t kMaxGlobalBatch = 1 << 30;  // sequences
inline constexpr double kMinSourceWeight = 1e-30;
inline constexpr double kMaxWeight = 1e6;  // of losses, rates and deviations
inline constexpr double kMaxNumber = 1e30;

}  // namespace tessera
