#include "checkpoint/hugging_face/config_fields.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera::hugging_face {

using Json = nlohmann::json;

ConfigFields::ConfigFields(const Json& json, std::string origin)
    : json_(json), origin_(std::move(origin)) {
  if (!json_.is_object()) throw Error("{}: found no JSON object", origin_);
}

const Json* ConfigFields::find(const std::string& key) {
  read_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::has(const std::string& key) const { return json_.contains(key); }

std::optional<int64_t> ConfigFields::size(const std::string& key, int64_t minimum,
                                          int64_t maximum) {
  const Json* json = find(key);
  if (json == nullptr) return std::nullopt;
  const bool whole = json->is_number_unsigned();
  const uint64_t value = whole ? json->get<uint64_t>() : 0;
  if (!whole || value < static_cast<uint64_t>(minimum) || value > static_cast<uint64_t>(maximum)) {
    refuse(key, fmt::format("a whole number from {} to {}", minimum, maximum));
  }
  return static_cast<int64_t>(value);
}

int64_t ConfigFields::required_size(const std::string& key, int64_t minimum, int64_t maximum) {
  const auto value = size(key, minimum, maximum);
  if (!value) throw Error("{}: the key '{}' is missing", origin_, key);
  return *value;
}

std::optional<double> ConfigFields::number(const std::string& key, double minimum) {
  const Json* json = find(key);
  if (json == nullptr) return std::nullopt;
  const double value = json->is_number() ? json->get<double>() : std::nan("");
  if (!std::isfinite(value) || value < minimum) {
    refuse(key, fmt::format("a number of at least {}", minimum));
  }
  return value;
}

std::optional<double> ConfigFields::number_above_zero(const std::string& key) {
  const auto value = number(key, 0);
  if (value && *value == 0) refuse(key, "a number above 0");
  return value;
}

double ConfigFields::required_number(const std::string& key, double minimum) {
  const auto value = number(key, minimum);
  if (!value) throw Error("{}: the key '{}' is missing", origin_, key);
  return *value;
}

bool ConfigFields::flag(const std::string& key, bool default_value) {
  const Json* json = find(key);
  if (json == nullptr) return default_value;
  if (!json->is_boolean()) refuse(key, "true or false");
  return json->get<bool>();
}

std::optional<std::string> ConfigFields::text(const std::string& key) {
  const Json* json = find(key);
  if (json == nullptr) return std::nullopt;
  if (!json->is_string()) refuse(key, "a text");
  return json->get<std::string>();
}

void ConfigFields::refuse(const std::string& key, const std::string& expected) const {
  throw Error("{}: '{}' is {}; expected {}", origin_, key, printable(json_.at(key).dump()),
              expected);
}

std::vector<std::string> ConfigFields::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items()) {
    if (!value.is_null() && !read_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace tessera::hugging_face
