#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The normalisation of text before a byte-pair encoding cuts and merges it. Immutable.
class BpeNormalizer {
 public:
  virtual ~BpeNormalizer() = default;

  /// Returns the normal form of `text`, valid UTF-8: `text` itself if it is normalised, otherwise
  /// `buffer`, filled with the normal form.
  std::string_view normalize(std::string_view text, std::string& buffer) const;

  /// A range of a text, as byte offsets, that normalisation may change. It can be normalised by
  /// itself. The text between two such ranges stays as it is.
  struct Change {
    size_t begin;
    size_t end;
  };
  /// Returns the first such range at or after `begin`, which must not be inside one. If there is
  /// none, returns an empty range at the end of the text.
  virtual Change next_change(std::string_view text, size_t begin) const = 0;
  /// Appends the normal form of the text of a range that next_change() returned.
  virtual void append_normalized(std::string_view part, std::string& result) const = 0;

  /// Returns the last safe cut of a text that arrives in parts, at or after `begin`; 0 if there is
  /// none. A cut is safe if the text before it has the same normal form whatever follows.
  virtual size_t last_cut(std::string_view text, size_t begin) const = 0;
};

/// Writes each space as U+2581, as SentencePiece does.
class SpaceMarks : public BpeNormalizer {
 public:
  /// Returns one space at a time. A longer range would have only its ends in an OffsetMap.
  Change next_change(std::string_view text, size_t begin) const override;
  void append_normalized(std::string_view part, std::string& result) const override;
  size_t last_cut(std::string_view text, size_t) const override { return text.size(); }
};

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
