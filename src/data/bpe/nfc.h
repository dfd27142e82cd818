#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/bpe_normalizer.h"

namespace tessera {

/// Unicode's normalisation form C (Unicode Standard Annex 15): characters that can be written
/// composed or decomposed are composed. Immutable after construction.
class NfcNormalizer : public BpeNormalizer {
 public:
  /// Examines every code point once, which takes some tens of milliseconds.
  NfcNormalizer();

  Change next_change(std::string_view text, size_t begin) const override;
  /// Needs n log n operations for any part.
  void append_normalized(std::string_view part, std::string& result) const override;
  /// Returns the offset of the last stable character at or after `begin`.
  size_t last_cut(std::string_view text, size_t begin) const override;

 private:
  /// Returns whether a character is stable: form C keeps it, whatever precedes it.
  bool is_stable(uint32_t code) const { return (stable_[code / 64] >> code % 64 & 1) != 0; }
  /// Returns the end of the run of stable characters from `begin` on. Sets `last` to its last one.
  size_t skip_stable(std::string_view text, size_t begin, size_t& last) const;
  size_t skip_unstable(std::string_view text, size_t begin) const;

  std::vector<uint64_t> stable_;  // one bit per code point
};

}  // namespace tessera
