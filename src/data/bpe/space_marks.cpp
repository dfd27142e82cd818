#include "data/bpe/space_marks.h"

#include <algorithm>

#include "data/sentencepiece/utf8_character.h"

namespace tessera {

BpeNormalizer::Change SpaceMarks::next_change(std::string_view text, size_t begin) const {
  const size_t space = std::min(text.find(' ', begin), text.size());
  return {space, std::min(space + 1, text.size())};
}

void SpaceMarks::append_normalized(std::string_view, std::string& result) const {
  result += kSpaceMark;
}

std::string without_space_marks(std::string_view text) {
  std::string result;
  for (size_t done = 0;;) {
    const size_t mark = text.find(kSpaceMark, done);
    result += text.substr(done, mark - done);
    if (mark == std::string_view::npos) return result;
    result += ' ';
    done = mark + kSpaceMark.size();
  }
}

}  // namespace tessera
