#include "data/bpe/bpe_normalizer.h"

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

}  // namespace tessera
