#pragma once

#include <cstdint>
#include <string>

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
  bool has(const char* name) const { return json_.contains(name); }
  /// Throws Error if there is none of that name, as do those below.
  const nlohmann::json& member(const char* name) const;
  /// A text that may stand in reports and errors as it is.
  std::string text(const char* name) const;
  int64_t whole(const char* name, int64_t least) const;
  /// The same for what is kept as an int. `what` ends the error's sentence: "a number of threads".
  int small(const char* name, int least, const char* what) const;
  /// A finite number above 0.
  double rate(const char* name) const;

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
