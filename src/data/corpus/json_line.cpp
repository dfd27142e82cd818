#include "data/corpus/json_line.h"

#include <charconv>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

namespace tessera {
namespace {

/// Returns the value of the escape \uXXXX at the start of `text`, or -1 if there is none.
int escape_value(std::string_view text) {
  int value = -1;
  if (text.size() < 6 || !text.starts_with("\\u")) return -1;
  const auto [end, code] = std::from_chars(text.data() + 2, text.data() + 6, value, 16);
  return code == std::errc() && end == text.data() + 6 ? value : -1;
}

/// Replaces each escape of a surrogate without its partner by \ufffd. Returns the number replaced.
int64_t mend_lone_surrogates(std::string& line) {
  int64_t replaced = 0;
  const std::string_view text = line;
  for (size_t i = 0; (i = text.find('\\', i)) != std::string_view::npos;) {
    const int value = escape_value(text.substr(i));
    if (value < 0xD800 || value > 0xDFFF) {
      i += 2;  // the escaped character may be a backslash
      continue;
    }
    const int next = i + 6 < text.size() ? escape_value(text.substr(i + 6)) : -1;
    if (value < 0xDC00 && next >= 0xDC00 && next <= 0xDFFF) {
      i += 12;
      continue;
    }
    line.replace(i, 6, "\\ufffd");
    ++replaced;
    i += 6;
  }
  return replaced;
}

enum class Found { none, one, several };

/// Finds the value of `key`. Returns whether there is none, one or several.
Found find_key(const simdjson::dom::object& object, std::string_view key,
               simdjson::dom::element& value) {
  Found found = Found::none;
  for (const auto field : object) {
    if (field.key != key) continue;
    if (found == Found::one) return Found::several;
    found = Found::one;
    value = field.value;
  }
  return found;
}

/// Finds the value at `path`. Tries `path` as a key first. Otherwise the part before the first dot
/// names an object, and the rest is found in it.
Found find_field(const simdjson::dom::object& object, std::string_view path,
                 simdjson::dom::element& value) {
  const Found exact = find_key(object, path, value);
  const size_t dot = path.find('.');
  if (exact != Found::none || dot == std::string_view::npos) return exact;
  simdjson::dom::element inner;
  const Found outer = find_key(object, path.substr(0, dot), inner);
  simdjson::dom::object fields;
  if (outer != Found::one || inner.get(fields) != simdjson::SUCCESS) {
    return outer == Found::several ? outer : Found::none;
  }
  return find_field(fields, path.substr(dot + 1), value);
}

}  // namespace

struct JsonLineParser::Parser {
  simdjson::dom::parser parser;
};

JsonLineParser::JsonLineParser(std::string text_field)
    : text_field_(std::move(text_field)), parser_(std::make_unique<Parser>()) {}

JsonLineParser::~JsonLineParser() = default;

std::string JsonLineParser::parse(std::string_view line, std::string_view& document,
                                  int64_t& replaced) {
  simdjson::dom::element root;
  const auto parse_text = [&](std::string_view text) {
    return parser_->parser.parse(text.data(), text.size(), /*realloc_if_needed=*/true).get(root);
  };
  simdjson::error_code code = parse_text(line);
  if (code == simdjson::STRING_ERROR) {
    // Some JSON writers produce lone surrogates. They are treated like broken UTF-8.
    std::string mended(line);
    const int64_t count = mend_lone_surrogates(mended);
    if (count > 0) {
      code = parse_text(mended);
      if (code == simdjson::SUCCESS) replaced += count;
    }
  }
  if (code != simdjson::SUCCESS) return fmt::format("invalid JSON ({})", error_message(code));
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return "not a JSON object";
  simdjson::dom::element value;
  switch (find_field(object, text_field_, value)) {
    case Found::none:
      return fmt::format("no field \"{}\"", text_field_);
    case Found::several:  // JSON readers differ in which one they use
      return fmt::format("several fields \"{}\"", text_field_);
    case Found::one:
      break;
  }
  if (value.get(document) != simdjson::SUCCESS) {
    return fmt::format("the field \"{}\" is not a string", text_field_);
  }
  return "";
}

}  // namespace tessera
