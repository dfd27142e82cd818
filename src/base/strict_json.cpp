#include "base/strict_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tessera {

using Json = nlohmann::json;

Json parse_strict_json(std::string_view text, const std::string& origin, int maximum_depth) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= maximum_depth) {
          throw Error("{}: found values nested deeper than the {} levels of this format", origin,
                      maximum_depth);
        }
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys.back().insert(key).second) {
          throw Error("{}: found the key {} twice in one object, expected once", origin,
                      in_quotes(key));
        }
        break;
      }
      default:
        break;
    }
    return true;
  };
  // The library takes a null byte as the end of the text and ignores what follows.
  if (text.find('\0') != std::string_view::npos) {
    throw Error("{}: found text that is not valid JSON (a null byte)", origin);
  }
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& error) {
    throw Error("{}: found text that is not valid JSON ({})", origin, printable(error.what()));
  }
}

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 200;
  size_t size = std::min(text.size(), kLongest);
  // Does not cut within a character: the bytes that continue one are 10xxxxxx.
  const auto continues = [&](size_t at) { return (text[at] & 0xc0) == 0x80; };
  for (int i = 0; i < 3 && size > 0 && size < text.size() && continues(size); ++i) --size;
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
