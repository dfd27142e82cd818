#include "data/corpus/plain_text.h"

#include <algorithm>

#include "data/corpus/utf8.h"

namespace tessera {
namespace {

constexpr int64_t kCountedAtOnce = int64_t{1} << 20;
constexpr size_t kBytesOfReplacement = 3;  // U+FFFD

}  // namespace

PlainText::PlainText(const CorpusFile& file, const ReadOptions& options)
    : file_(file), options_(options), map_(file.path) {
  require_unchanged(file, static_cast<int64_t>(map_.bytes().size()));
  if (map_.text().starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
}

std::string_view PlainText::part(int64_t begin, int64_t end) const {
  return map_.text().substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

int64_t PlainText::cut(int64_t place) const {
  if (place <= begin_) return begin_;
  return static_cast<int64_t>(next_character(map_.text(), static_cast<size_t>(place)));
}

std::string_view PlainText::read(int64_t begin, int64_t end, int64_t place, PlaceMap& places) {
  const std::string_view raw = part(begin, end);
  places.add(place, begin, /*kept=*/true);
  int64_t replaced = 0;
  const std::string_view text = repair_utf8(raw, repaired_, replaced);
  if (replaced == 0) return text;
  if (options_.fail_on_invalid_utf8) refuse_broken_utf8(file_, begin);
  for (size_t read = 0, made = 0; read < raw.size();) {
    const Utf8Character character = first_character(raw.substr(read));
    const auto add_run = [&](bool kept) {
      places.add(place + static_cast<int64_t>(made), begin + static_cast<int64_t>(read), kept);
    };
    if (!character.valid) add_run(/*kept=*/false);
    read += character.length;
    made += character.valid ? character.length : kBytesOfReplacement;
    if (!character.valid) add_run(/*kept=*/true);
  }
  return text;
}

int64_t PlainText::count_broken(int64_t begin, int64_t end) {
  int64_t replaced = 0;
  while (begin < end) {
    const int64_t next = std::min(end, cut(std::min(end, begin + kCountedAtOnce)));
    repair_utf8(part(begin, next), repaired_, replaced);
    begin = next;
  }
  return replaced;
}

}  // namespace tessera
