#include "data/bpe/bpe_normalizer.h"

#include <algorithm>

#include "data/sentencepiece/utf8_character.h"

namespace tessera {

std::string_view BpeNormalizer::normalize(std::string_view text, std::string& buffer) const {
  Change change = next_change(text, 0);
  if (change.begin == text.size()) return text;
  buffer.clear();
  size_t copied = 0;  // the bytes of `text` whose normal form is in the buffer
  while (change.begin < text.size()) {
    buffer.append(text.substr(copied, change.begin - copied));
    append_normalized(text.substr(change.begin, change.end - change.begin), buffer);
    copied = change.end;
    change = next_change(text, copied);
  }
  buffer.append(text.substr(copied));
  return buffer;
}

BpeNormalizer::Change SpaceMarks::next_change(std::string_view text, size_t begin) const {
  const size_t space = std::min(text.find(' ', begin), text.size());
  return {space, std::min(space + 1, text.size())};
}

void SpaceMarks::append_normalized(std::string_view, std::string& result) const {
  result += kSpaceMark;
}

}  // namespace tessera
