#include "data/sentencepiece/bpe_stretches.h"

#include <span>

namespace tessera {

void BpeStretches::encode(std::string_view stretch, std::vector<int32_t>& tokens) {
  if (stretch.size() > WordCache::kLongestWord) {
    merger_.encode(stretch, scratch_, tokens);
    return;
  }
  WordCache::Entry& entry = words_.slot(stretch);
  if (entry.holds(stretch)) {
    for (const int32_t token : entry.tokens()) tokens.push_back(token);
    return;
  }
  const size_t before = tokens.size();
  const bool known = merger_.encode(stretch, scratch_, tokens);
  const auto added = std::span<const int32_t>(tokens).subspan(before);
  // Words with unknown characters are not stored, because their token may join the token before it.
  if (known && WordCache::fits(stretch, added.size())) WordCache::store(entry, stretch, added);
}

}  // namespace tessera
