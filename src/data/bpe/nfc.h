#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Unicode's normalisation form C (Unicode Standard Annex 15): characters that can be written
/// composed or decomposed are composed. Immutable after construction.
class NfcNormalizer {
 public:
  /// Looks at every code point once; takes some tens of milliseconds.
  NfcNormalizer();

  /// `text`, valid UTF-8, itself where it is normalised; otherwise `buffer`, filled with its normal
  /// form. Takes n log n operations whatever the text.
  std::string_view normalize(std::string_view text, std::string& buffer) const;

 private:
  /// Whether normalisation leaves this character as it is whatever precedes it.
  bool is_stable(uint32_t code) const { return (stable_[code / 64] >> code % 64 & 1) != 0; }
  /// The end of the characters from `begin` on that are stable, and where the last of them begins.
  size_t skip_stable(std::string_view text, size_t begin, size_t& last) const;
  size_t skip_unstable(std::string_view text, size_t begin) const;

  std::vector<uint64_t> stable_;  // a bit a code point
};

}  // namespace tessera
