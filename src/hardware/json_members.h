#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/words.h"

namespace tessera {

/// Reads the members of one JSON object of a hardware file, and checks their types and ranges. The
/// functions throw Error if a member is missing or not what it should be. The message names the
/// path of the object in the file. The JSON must outlive the reader.
class JsonMembers {
 public:
  static constexpr const char* kPlainText =
      "a text of at most 200 bytes without control characters";

  /// Throws Error if `json` is no object.
  JsonMembers(const nlohmann::json& json, std::string path);

  const std::string& path() const { return path_; }
  /// Throws Error if a member's name is not one of `names`: misspelt ones would be overlooked.
  void require_known(const std::vector<std::string>& names) const;
  bool has(const char* name) const { return json_.contains(name); }
  /// Returns the member as it is.
  const nlohmann::json& member(const char* name) const;
  /// Returns a text that reports and errors may quote as it is.
  std::string text(const char* name) const;
  /// Returns a whole number from `minimum` to `maximum`, written in digits alone.
  int64_t whole(const char* name, int64_t minimum,
                int64_t maximum = std::numeric_limits<int64_t>::max()) const;
  /// Returns a whole number that fits an int.
  int whole_int(const char* name, int minimum) const;
  /// Returns a number per second, `minimum` or more. Throws Error above 10^18, which no machine
  /// reaches.
  double rate(const char* name, double minimum = 1) const;

  /// Returns convert(text) of a member that is a text. Adds the object's path to an Error that
  /// `convert` throws.
  template <typename Convert>
  auto converted(const char* name, const Convert& convert) const {
    const std::string value = text(name);
    try {
      return convert(value);
    } catch (const Error& error) {
      throw Error("{}: {}", path_, error.what());
    }
  }

  /// Returns the value of an enum's word (see known_word()).
  template <Worded Enum>
  Enum word_of(const char* name, std::string_view noun) const {
    return converted(name, [&](std::string_view text) { return known_word<Enum>(text, noun); });
  }

  /// Calls visit(element, path) for the elements of an array.
  template <typename Visitor>
  void for_each(const char* name, const Visitor& visit) const {
    if (!member(name).is_array()) refuse(name, "an array");
    size_t index = 0;
    for (const nlohmann::json& element : member(name)) {
      visit(element, fmt::format("{}: {}[{}]", path_, name, index++));
    }
  }

  /// Throws the Error about a member that is not what is expected.
  [[noreturn]] void refuse(const char* name, const std::string& expected) const;

 private:
  const nlohmann::json& json_;
  std::string path_;
};

/// Returns whether `json` is a text of at most 200 bytes that a terminal shows as it is.
bool is_plain_text(const nlohmann::json& json);

}  // namespace tessera
