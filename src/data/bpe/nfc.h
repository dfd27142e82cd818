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

  /// A part of a text that normalisation may change, in bytes. It can be normalised by itself, and
  /// so can what stands before and after it.
  struct Change {
    size_t begin;
    size_t end;
  };
  /// The first such part from `begin` on, which begins there or is no part of one; at the end of
  /// the text where there is none.
  Change next_change(std::string_view text, size_t begin) const;
  /// Adds the normal form of such a part.
  void append_normalized(std::string_view part, std::string& result) const;

  /// The last place, not before `begin` and not 0, whose character normalisation leaves as it is
  /// whatever precedes it: what stands before it can be normalised without what follows. 0 where
  /// there is none.
  size_t last_cut(std::string_view text, size_t begin) const;

 private:
  /// Whether normalisation leaves this character as it is whatever precedes it.
  bool is_stable(uint32_t code) const { return (stable_[code / 64] >> code % 64 & 1) != 0; }
  /// The end of the characters from `begin` on that are stable, and where the last of them begins.
  size_t skip_stable(std::string_view text, size_t begin, size_t& last) const;
  size_t skip_unstable(std::string_view text, size_t begin) const;

  std::vector<uint64_t> stable_;  // a bit a code point
};

}  // namespace tessera
