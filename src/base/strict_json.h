#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// Parses JSON that may be hostile. Throws Error, its message starting with `origin`, when the text
/// is not JSON, when an object names a key twice (the library alone would keep the last one) or
/// when values nest deeper than `maximum_depth`: an array of numbers has depth 1.
nlohmann::json parse_strict_json(std::string_view text, const std::string& origin,
                                 int maximum_depth);

/// Text from a file that may be hostile, fit for a terminal: control characters become '?', bytes
/// that are not UTF-8 U+FFFD, and what exceeds 200 bytes is cut.
std::string printable(std::string_view text);

/// `printable` in single quotes.
std::string in_quotes(std::string_view text);

}  // namespace tessera
