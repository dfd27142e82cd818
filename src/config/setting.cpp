// A TOML library parses the text. Its document is then flattened into a list of settings, in which
// each key of a section, or of a table in a list, is one entry.

#include "config/setting.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

/// The most parts of a key; train.phases.context has three. The parser recurses once per part, so a
/// key of very many parts would overflow the stack.
constexpr int kMaxKeyParts = 16;

/// Returns the index after the TOML string that begins at `begin`. A string without its end counts
/// up to the end of the line, or of the text if it may have several lines.
size_t skip_string(std::string_view text, size_t begin) {
  const char quote = text[begin];
  const bool multiline = text.substr(begin, 3) == std::string(3, quote);
  const std::string end(multiline ? 3 : 1, quote);
  for (size_t i = begin + end.size(); i < text.size(); ++i) {
    if (text.substr(i, end.size()) == end) return i + end.size();
    if (quote == '"' && text[i] == '\\') ++i;
    if (!multiline && text[i] == '\n') return i;
  }
  return text.size();
}

bool separates_keys(char letter) {
  return std::string_view("\n=,[]{}").find(letter) != std::string_view::npos;
}

/// Throws Error, which names the text `name` and the line, if a key of a TOML text has more than
/// kMaxKeyParts parts. Skips strings and comments, whose dots separate no parts.
void require_shallow_keys(std::string_view text, const std::string& name) {
  int parts = 1;
  for (size_t i = 0; i < text.size();) {
    const char letter = text[i];
    if (letter == '"' || letter == '\'') {
      i = skip_string(text, i);
      continue;
    }
    if (letter == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (separates_keys(letter)) parts = 1;
    if (letter == '.' && ++parts > kMaxKeyParts) {
      throw Error("{}:{}: a key has more than {} parts, such as the three of train.phases.context",
                  name,
                  1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'),
                  kMaxKeyParts);
    }
    ++i;
  }
}

/// Returns the kind of a value that no key takes: "a table", "a date".
std::string kind_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array that holds neither texts only nor whole numbers only";
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

/// Returns the elements of an array, or none if one of them has another type.
template <typename Element>
std::optional<std::vector<Element>> elements_of(const toml::array& array) {
  std::vector<Element> elements;
  for (const toml::node& node : array) {
    const auto element = node.value_exact<Element>();
    if (!element) return std::nullopt;
    elements.push_back(*element);
  }
  return elements;
}

ConfigValue value_of_array(const toml::array& array) {
  if (auto texts = elements_of<std::string>(array)) return *std::move(texts);
  if (auto numbers = elements_of<int64_t>(array)) return *std::move(numbers);
  return OtherValue{kind_text(array)};
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

/// Appends the settings of a list of tables. The first setting empties the list. Settings without a
/// key have the value false, which nothing reads.
void append_list(const std::string& section, const std::string& list, const toml::array& tables,
                 const std::function<std::string(const toml::source_region&)>& position_of,
                 std::vector<Setting>& settings) {
  settings.push_back({section, "", false, position_of(tables.source()), list, ""});
  for (size_t i = 0; i < tables.size(); ++i) {
    const toml::table& table = *tables.get(i)->as_table();
    const std::string number = std::to_string(i);
    settings.push_back({section, "", false, position_of(table.source()), list, number});
    for (const auto& [key, value] : table) {
      settings.push_back(
          {section, std::string(key), value_of(value), position_of(key.source()), list, number});
    }
  }
}

/// Returns whether the text is a name or a path, which overrides give without quotes.
bool is_bare_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("_-./~+:@%").find(static_cast<char>(letter)) != std::string_view::npos;
  });
}

}  // namespace

std::vector<Setting> settings_of_text(std::string_view text, const std::string& name) {
  require_shallow_keys(text, name);
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
      if (value.is_array_of_tables()) {
        append_list(
            std::string(section), std::string(key), *value.as_array(),
            [&](const toml::source_region& source) { return position(name, source); }, settings);
        continue;
      }
      settings.push_back(
          {std::string(section), std::string(key), value_of(value), position(name, key.source())});
    }
  }
  return settings;
}

std::vector<Setting> settings_of_override(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string path = text.substr(0, equals);
  const size_t dot = path.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 ||
      dot + 1 == path.size()) {
    throw Error("the override {} is not of the form section.key=VALUE, such as train.steps=100",
                in_quotes(text));
  }
  std::string where = "override " + printable(text);
  const std::string section = path.substr(0, dot);
  const std::string rest = path.substr(dot + 1);
  std::vector<Setting> settings;
  const std::string value_text = text.substr(equals + 1);
  require_shallow_keys(value_text, where);
  toml::table parsed;
  try {
    parsed = toml::parse("value = " + value_text);
  } catch (const toml::parse_error&) {
    if (is_bare_word(value_text)) parsed.insert_or_assign("value", value_text);
  }
  if (parsed.size() != 1) {
    throw Error(
        "the override {} has no value that TOML knows after the '='; write for example "
        "train.steps=100, run.directory=\"my runs/1\" or train.recompute='[\"norm\"]'",
        in_quotes(text));
  }
  const toml::node& value = *parsed.get("value");
  const size_t list_end = rest.find('.');
  const size_t table_end = rest.rfind('.');
  if (value.is_array_of_tables()) {
    append_list(
        section, rest, *value.as_array(),
        [&](const toml::source_region& /*source*/) { return where; }, settings);
  } else if (list_end != table_end) {  // a table's name may contain dots
    settings.push_back({section, rest.substr(table_end + 1), value_of(value), where,
                        rest.substr(0, list_end),
                        rest.substr(list_end + 1, table_end - list_end - 1)});
  } else {
    settings.push_back({section, rest, value_of(value), where});
  }
  return settings;
}

}  // namespace tessera
