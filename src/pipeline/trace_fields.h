#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/words.h"
#include "pipeline/run_trace.h"

namespace tessera {

/// Reads fields of a trace's JSON, and trusts nothing: the type and the range of each are checked.
/// Errors name the file, the entry and what was expected, and quote no control characters.
class TraceFields {
 public:
  using Json = nlohmann::json;
  static constexpr double kMaxNumber = 1e30;  // small enough that no sum overflows

  explicit TraceFields(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  /// Names the entry that is read from now on, for errors.
  void enter(std::string entry) { entry_ = std::move(entry); }

  template <typename... Arguments>
  [[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    throw Error("{} is damaged: in {}, {}; {}", file_, entry_,
                fmt::format(format, std::forward<Arguments>(arguments)...), kTraceAdvice);
  }

  const Json& field(const Json& json, const char* key) const {
    if (!json.is_object()) fail("found an entry that is not an object");
    const auto found = json.find(key);
    if (found == json.end()) fail("'{}' is missing", key);
    return *found;
  }

  std::string text(const Json& json, const char* key) const {
    return text_value(field(json, key), key);
  }
  std::string text_or_empty(const Json& json, const char* key) const {
    return json.contains(key) ? text(json, key) : "";
  }
  std::string text_value(const Json& value, const char* key) const {
    if (!value.is_string()) fail("'{}' is not a text", key);
    return printable(value.get_ref<const std::string&>());
  }

  const Json& list(const Json& json, const char* key) const {
    const Json& value = field(json, key);
    if (!value.is_array()) fail("'{}' is not a list", key);
    return value;
  }

  bool flag(const Json& json, const char* key) const {
    const Json& value = field(json, key);
    if (!value.is_boolean()) fail("'{}' is neither true nor false", key);
    return value.get<bool>();
  }

  double number(const Json& json, const char* key, double max = kMaxNumber) const {
    const Json& value = field(json, key);
    const double result = value.is_number() ? value.get<double>() : -1;
    if (!(result >= 0 && result <= max)) fail("'{}' is not a number from 0 to {}", key, max);
    return result;
  }
  double number_or_zero(const Json& json, const char* key) const {
    return json.contains(key) ? number(json, key) : 0;
  }

  int64_t integer_value(const Json& value, const char* key, int64_t min, int64_t max) const {
    const bool fits = value.is_number_integer() && value >= min && value <= max;
    if (!fits) fail("'{}' is not a whole number from {} to {}", key, min, max);
    return value.get<int64_t>();
  }
  int64_t integer(const Json& json, const char* key, int64_t min, int64_t max) const {
    return integer_value(field(json, key), key, min, max);
  }
  /// Returns a whole number from 0 on that an int can hold with room to spare.
  int index_value(const Json& value, const char* key) const {
    return static_cast<int>(integer_value(value, key, 0, kMaxIndex));
  }
  int index(const Json& json, const char* key) const { return index_value(field(json, key), key); }

  /// Returns the value that a word stands for.
  template <Worded Enum>
  Enum word_of(const Json& json, const char* key) const {
    const std::string name = text(json, key);
    if (const auto known = value_of_word<Enum>(name)) return *known;
    fail("'{}' is {}, expected one of {}", key, in_quotes(name), join(words_of<Enum>(), ", "));
  }

 private:
  static constexpr int64_t kMaxIndex = 1 << 24;

  std::string file_;
  std::string entry_ = "otherData";
};

}  // namespace tessera
