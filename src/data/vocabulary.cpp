#include "data/vocabulary.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/strict_json.h"

namespace tessera {
namespace {

std::string spelling_of(const Tokenizer* tokenizer, int32_t token) {
  if (tokenizer == nullptr || token < 0 || token >= tokenizer->vocabulary_size()) return "";
  const std::string text = tokenizer->decode({{token}});
  return text.empty() ? " (a control token)" : fmt::format(" ({})", in_quotes(text));
}

}  // namespace

void require_in_vocabulary(std::span<const int32_t> tokens, int64_t vocabulary_size,
                           const Tokenizer* tokenizer, int32_t smallest_id) {
  const auto outside = std::ranges::find_if(
      tokens, [&](int32_t token) { return token < smallest_id || token >= vocabulary_size; });
  if (outside == tokens.end()) return;
  throw Error(
      "token {}{} is outside the model's vocabulary of {} tokens (0 to {}); the model cannot read "
      "it: take it out of the text, or tokenize with the model's own tokens alone",
      *outside, spelling_of(tokenizer, *outside), vocabulary_size, vocabulary_size - 1);
}

}  // namespace tessera
