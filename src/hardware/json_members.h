#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {

/// The members of one JSON object of a hardware file. Errors say where the object stands.
class JsonMembers {
 public:
  static constexpr const char* kPlainText =
      "a text of at most 200 bytes without control characters";

  /// Throws Error if `json` is no object.
  JsonMembers(const nlohmann::json& json, std::string place);

  const std::string& place() const { return place_; }
  /// Throws Error if the object has a member of another name: a misspelt one would be overlooked.
  void require_known(const std::vector<std::string>& names) const;
  bool has(const char* name) const { return json_.contains(name); }
  /// Throws Error if there is none of that name, as do those below.
  const nlohmann::json& member(const char* name) const;
  /// A text that may stand in reports and errors as it is.
  std::string text(const char* name) const;
  /// A whole number that is written without a point and an exponent.
  int64_t whole(const char* name, int64_t least,
                int64_t most = std::numeric_limits<int64_t>::max()) const;
  /// The same for what is kept as an int.
  int small(const char* name, int least) const;
  /// A number per second, of `least` at least. No machine has as many as 10^18.
  double rate(const char* name, double least = 1) const;

  /// Converts a text with `convert`. Adds the place to the Error if `convert` does not know the
  /// text.
  template <typename Convert>
  auto named(const char* name, const Convert& convert) const {
    const std::string value = text(name);
    try {
      return convert(value);
    } catch (const Error& error) {
      throw Error("{}: {}", place_, error.what());
    }
  }

  /// Visits the elements of an array, each with its place.
  template <typename Visitor>
  void each(const char* name, const Visitor& visit) const {
    if (!member(name).is_array()) wrong(name, "an array");
    size_t index = 0;
    for (const nlohmann::json& element : member(name)) {
      visit(element, fmt::format("{}: {}[{}]", place_, name, index++));
    }
  }

  [[noreturn]] void wrong(const char* name, const std::string& expected) const;

 private:
  const nlohmann::json& json_;
  std::string place_;
};

/// Whether it is a text of at most 200 bytes that a terminal shows as it is.
bool is_plain_text(const nlohmann::json& json);

}  // namespace tessera
