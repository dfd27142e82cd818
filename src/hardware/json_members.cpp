#include "hardware/json_members.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/strict_json.h"

namespace tessera {

bool is_plain_text(const nlohmann::json& json) {
  return json.is_string() && printable(json.get<std::string>()) == json.get<std::string>();
}

JsonMembers::JsonMembers(const nlohmann::json& json, std::string place)
    : json_(json), place_(std::move(place)) {
  if (!json.is_object()) throw Error("{}: found no JSON object, expected one", place_);
}

const nlohmann::json& JsonMembers::member(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) throw Error("{}: there is no \"{}\"", place_, name);
  return *found;
}

std::string JsonMembers::text(const char* name) const {
  if (!is_plain_text(member(name))) wrong(name, kPlainText);
  return member(name).get<std::string>();
}

int64_t JsonMembers::whole(const char* name, int64_t least) const {
  const nlohmann::json& value = member(name);
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= kLargest;
  if (!fits || value.get<int64_t>() < least) {
    wrong(name, fmt::format("a whole number of at least {}", least));
  }
  return value.get<int64_t>();
}

int JsonMembers::small(const char* name, int least, const char* what) const {
  const int64_t value = whole(name, least);
  if (value > std::numeric_limits<int>::max()) wrong(name, what);
  return static_cast<int>(value);
}

double JsonMembers::rate(const char* name) const {
  if (!member(name).is_number() || !(member(name).get<double>() > 0) ||
      !std::isfinite(member(name).get<double>())) {
    wrong(name, "a number above 0");
  }
  return member(name).get<double>();
}

void JsonMembers::wrong(const char* name, const std::string& expected) const {
  throw Error("{}: \"{}\" is {}, expected {}", place_, name, printable(member(name).dump()),
              expected);
}

}  // namespace tessera
