#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// Parses JSON that may be hostile. Throws Error if the text is not JSON, if an object has a key
/// twice (the library alone would keep the last one) or if values nest deeper than `maximum_depth`.
/// An array of numbers has depth 1. The message starts with `origin`.
nlohmann::json parse_strict_json(std::string_view text, const std::string& origin,
                                 int maximum_depth);

/// Returns text from a file that may be hostile in a form that is safe to print on a terminal.
/// Control characters become '?', bytes that are not UTF-8 become U+FFFD, and what exceeds 200
/// bytes becomes "...".
std::string printable(std::string_view text);

/// Returns printable(text) in single quotes.
std::string in_quotes(std::string_view text);

}  // namespace tessera
