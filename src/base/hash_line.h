#pragma once

#include <string>
#include <string_view>

namespace tessera {

// JSON texts with a hash line, which reveals damage: the second line holds the object's first key,
// whose value is the hash of all bytes after that line.
//
//   {
//    "xxh3": "0123456789abcdef",
//    ...

/// Adds a hash line to the text of a JSON object, which must begin with "{\n", and returns it.
std::string with_hash_line(std::string_view object);

/// Returns whether a text begins with a hash line.
bool has_hash_line(std::string_view text);

/// Throws Error if the hash of `text` differs from the hash in its hash line. The message says that
/// the file `origin` is damaged and ends with `advice`. `text` must have a hash line.
void check_hash_line(std::string_view text, const std::string& origin, std::string_view advice);

}  // namespace tessera
