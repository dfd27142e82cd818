#include "hardware/json_members.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {

bool is_plain_text(const nlohmann::json& json) {
  return json.is_string() && printable(json.get<std::string>()) == json.get<std::string>();
}

JsonMembers::JsonMembers(const nlohmann::json& json, std::string path)
    : json_(json), path_(std::move(path)) {
  if (!json.is_object()) throw Error("{}: found no JSON object, expected one", path_);
}

const nlohmann::json& JsonMembers::member(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) throw Error("{}: there is no \"{}\"", path_, name);
  return *found;
}

std::string JsonMembers::text(const char* name) const {
  if (!is_plain_text(member(name))) refuse(name, kPlainText);
  return member(name).get<std::string>();
}

void JsonMembers::require_known(const std::vector<std::string>& names) const {
  for (const auto& [name, unused] : json_.items()) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const std::string nearest = nearest_name(name, names);
    throw Error("{}: unknown member \"{}\"; {}", path_, printable(name),
                nearest.empty() ? "known are " + join(names, ", ")
                                : fmt::format("did you mean \"{}\"?", nearest));
  }
}

int64_t JsonMembers::whole(const char* name, int64_t minimum, int64_t maximum) const {
  const nlohmann::json& value = member(name);
  const bool fits =
      value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(maximum);
  if (!fits || value.get<int64_t>() < minimum) {
    refuse(name, fmt::format("a whole number from {} to {}, in digits", minimum, maximum));
  }
  return value.get<int64_t>();
}

int JsonMembers::whole_int(const char* name, int minimum) const {
  return static_cast<int>(whole(name, minimum, std::numeric_limits<int>::max()));
}

double JsonMembers::rate(const char* name, double minimum) const {
  constexpr double kMost = 1e18;
  const nlohmann::json& value = member(name);
  if (!value.is_number() || !(value.get<double>() >= minimum && value.get<double>() <= kMost)) {
    refuse(name, fmt::format("a number from {:g} to {:g}", minimum, kMost));
  }
  return value.get<double>();
}

void JsonMembers::refuse(const char* name, const std::string& expected) const {
  throw Error("{}: \"{}\" is {}, expected {}", path_, name, printable(member(name).dump()),
              expected);
}

}  // namespace tessera
