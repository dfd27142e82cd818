#pragma once

#include <string>
#include <string_view>

#include "data/bpe/bpe_normalizer.h"

namespace tessera {

/// A normalizer that writes each space as U+2581, as SentencePiece does.
class SpaceMarks : public BpeNormalizer {
 public:
  /// Returns one space at a time, so that the offsets between spaces stay known.
  Change next_change(std::string_view text, size_t begin) const override;
  void append_normalized(std::string_view part, std::string& result) const override;
  size_t last_cut(std::string_view text, size_t) const override { return text.size(); }
};

/// Returns `text` with a space for each U+2581, also for those that the original text contained.
std::string without_space_marks(std::string_view text);

}  // namespace tessera
