#include "config/setting.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "base/error.h"

namespace tessera {
namespace {

/// "a table", "a date": what a value that no key takes is.
std::string kind_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array that does not hold texts only";
    case toml::node_type::date:
      return "a date";
    case toml::node_type::time:
      return "a time";
    case toml::node_type::date_time:
      return "a date and time";
    default:
      return "no value";
  }
}

ConfigValue value_of_array(const toml::array& array) {
  std::vector<std::string> texts;
  for (const toml::node& element : array) {
    const auto text = element.value_exact<std::string>();
    if (!text) return OtherValue{kind_text(array)};
    texts.push_back(*text);
  }
  return texts;
}

ConfigValue value_of(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto integer = node.value_exact<int64_t>()) return *integer;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const toml::array* array = node.as_array()) return value_of_array(*array);
  return OtherValue{kind_text(node)};
}

std::string position(const std::string& name, const toml::source_region& source) {
  return fmt::format("{}:{}", name, source.begin.line);
}

/// The TOML value that `text` is, or nothing.
std::optional<ConfigValue> parse_value(const std::string& text) {
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() != 1) return std::nullopt;
    return value_of(*table.get("value"));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

/// A word that nobody would quote: a name or a path.
bool is_bare_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("_-./~+:@%").find(static_cast<char>(letter)) != std::string_view::npos;
  });
}

}  // namespace

std::vector<Setting> settings_of_text(std::string_view text, const std::string& name) {
  toml::table document;
  try {
    document = toml::parse(text, name);
  } catch (const toml::parse_error& failure) {
    const toml::source_position begin = failure.source().begin;
    throw Error("{}:{}:{}: this is not TOML: {}", name, begin.line, begin.column,
                failure.description());
  }
  std::vector<Setting> settings;
  for (const auto& [section, node] : document) {
    const std::string where = position(name, section.source());
    if (node.is_array_of_tables()) {
      throw Error("{}: [[{}]] begins a list of tables; write [{}] once", where, section.str(),
                  section.str());
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      settings.push_back({"", std::string(section), value_of(node), where});
      continue;
    }
    if (table->empty()) settings.push_back({std::string(section), "", value_of(node), where});
    for (const auto& [key, value] : *table) {
      settings.push_back(
          {std::string(section), std::string(key), value_of(value), position(name, key.source())});
    }
  }
  return settings;
}

Setting setting_of_override(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const size_t dot = path.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 ||
      dot + 1 == path.size()) {
    throw Error("the override '{}' is not of the form section.key=VALUE, such as train.steps=100",
                text);
  }
  const std::string value_text = text.substr(equals + 1);
  std::optional<ConfigValue> value = parse_value(value_text);
  if (!value && is_bare_word(value_text)) value = value_text;
  if (!value) {
    throw Error(
        "the override '{}' has no value that TOML knows after the '='; write for example "
        "train.steps=100, run.directory=\"my runs/1\" or train.recompute='[\"norm\"]'",
        text);
  }
  return {path.substr(0, dot), path.substr(dot + 1), *value, "override " + text};
}

}  // namespace tessera
