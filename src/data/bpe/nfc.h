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
  /// Looks at every code point once. This takes some tens of milliseconds.
  NfcNormalizer();

  /// Returns the normal form of `text`, valid UTF-8: `text` itself if it is normalised, otherwise
  /// `buffer`, filled with the normal form. Takes n log n operations for any text.
  std::string_view normalize(std::string_view text, std::string& buffer) const;

  /// A part of a text that normalisation may change, as byte offsets. It can be normalised by
  /// itself, and so can the text before and after it.
  struct Change {
    size_t begin;
    size_t end;
  };
  /// Returns the first such part at or after `begin`, which must not lie inside one. Returns an
  /// empty part at the end of the text if there is none.
  Change next_change(std::string_view text, size_t begin) const;
  /// Appends the normal form of such a part.
  void append_normalized(std::string_view part, std::string& result) const;

  /// Returns the last place at or after `begin` whose character normalisation leaves unchanged,
  /// whatever precedes it. The text before it can be normalised without the text after it. Returns
  /// 0 if there is no such place above 0.
  size_t last_cut(std::string_view text, size_t begin) const;

 private:
  /// Whether normalisation leaves this character unchanged, whatever precedes it.
  bool is_stable(uint32_t code) const { return (stable_[code / 64] >> code % 64 & 1) != 0; }
  /// Returns the end of the run of stable characters from `begin` on. Sets `last` to where the last
  /// of them begins.
  size_t skip_stable(std::string_view text, size_t begin, size_t& last) const;
  size_t skip_unstable(std::string_view text, size_t begin) const;

  std::vector<uint64_t> stable_;  // one bit per code point
};

}  // namespace tessera
