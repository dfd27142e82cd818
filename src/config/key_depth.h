#pragma once

#include <string>
#include <string_view>

namespace tessera {

/// The most parts of a key such as train.phases.context. The parser recurses once per part, so a
/// key of very many parts would overflow the stack.
inline constexpr int kMostKeyParts = 16;

/// Throws Error, which names the text `name` and the line, if a key of a TOML text has more parts.
void require_shallow_keys(std::string_view text, const std::string& name);

}  // namespace tessera
