#pragma once

#include <cstddef>
#include <string>
#include <string_view>

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

}  // namespace tessera
