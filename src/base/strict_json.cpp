#include "base/strict_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"

namespace tessera {

using Json = nlohmann::json;

namespace {

/// Checks a JSON text while the library reads it. Stores only the keys of the objects that are
/// open. The library's parse() with a callback would be no alternative: after each object it looks
/// through all members of the enclosing object, which takes time quadratic in their number.
class StrictReading final : public nlohmann::json_sax<Json> {
 public:
  StrictReading(const std::string& origin, size_t maximum_depth)
      : origin_(origin), maximum_depth_(maximum_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t& key) override {
    if (open_keys_.back().insert(key).second) return true;
    throw Error("{}: found the key {} twice in one object, expected once", origin_, in_quotes(key));
  }
  /// Stops the reading. The error of parse() then says what is wrong.
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool enter() {
    if (open_keys_.size() >= maximum_depth_) {
      throw Error("{}: found values nested deeper than the {} levels of this format", origin_,
                  maximum_depth_);
    }
    open_keys_.emplace_back();
    return true;
  }
  bool leave() {
    open_keys_.pop_back();
    return true;
  }

  const std::string& origin_;
  size_t maximum_depth_;
  std::vector<std::set<std::string>> open_keys_;  // the keys of each open object; none for an array
};

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& origin, int maximum_depth) {
  // The library takes a null byte as the end of the text and ignores what follows.
  if (text.find('\0') != std::string_view::npos) {
    throw Error("{}: found text that is not valid JSON (a null byte)", origin);
  }
  StrictReading reading(origin, static_cast<size_t>(maximum_depth));
  try {
    Json::sax_parse(text, &reading);
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error("{}: found text that is not valid JSON ({})", origin, printable(error.what()));
  }
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 200;
  size_t size = std::min(text.size(), kLongest);
  // The text is not cut within a character, which has at most 3 bytes after its first.
  for (int i = 0; i < 3 && size > 0 && size < text.size() && is_inside_character(text[size]); ++i) {
    --size;
  }
  // The library's writer replaces broken UTF-8.
  const Json escaped(std::string(text.substr(0, size)));
  auto result =
      Json::parse(escaped.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  for (char& letter : result) {
    const auto code = static_cast<unsigned char>(letter);
    if (code < 0x20 || code == 0x7f) letter = '?';
  }
  if (size < text.size()) result += "...";
  return result;
}

std::string in_quotes(std::string_view text) { return fmt::format("'{}'", printable(text)); }

}  // namespace tessera
