#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// JSON files that say when they are damaged: the first key of their object, on the first two
/// lines, is the hash of all the bytes that follow it.
///
///   {
///    "xxh3": "0123456789abcdef",
///    ...

/// The text of such a file. `object` is the text of a JSON object that begins with "{\n".
std::string with_hash_line(std::string_view object);

/// Whether a text begins as those files do.
bool has_hash_line(std::string_view text);

/// Throws Error saying that the file `origin` is damaged when the hash of `text`, which has a line
/// of its hash, is another; the message ends with `advice`.
void check_hash_line(std::string_view text, const std::string& origin, std::string_view advice);

}  // namespace tessera
