#include "config/key_depth.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns the index behind the TOML string that begins at `begin`, or the text's end if the string
/// does not end.
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

}  // namespace

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
    if (letter == '.' && ++parts > kMostKeyParts) {
      throw Error("{}:{}: a key has more than {} parts, such as the three of train.phases.context",
                  name,
                  1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'),
                  kMostKeyParts);
    }
    ++i;
  }
}

}  // namespace tessera
