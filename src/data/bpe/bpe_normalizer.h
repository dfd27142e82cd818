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

  /// A part of a text that normalisation may change, as byte offsets. It can be normalised by
  /// itself, and so can the text before and after it.
  struct Change {
    size_t begin;
    size_t end;
  };
  /// Returns the first part to change at or after `begin`, which must not be inside one. Returns an
  /// empty part at the end of the text if there is none.
  virtual Change next_change(std::string_view text, size_t begin) const = 0;
  /// Appends the normal form of a part that next_change() returned.
  virtual void append_normalized(std::string_view part, std::string& result) const = 0;

  /// Returns the last offset at or after `begin` up to which the text can be normalised without the
  /// text after it. Returns 0 if there is no such offset above 0.
  virtual size_t last_cut(std::string_view text, size_t begin) const = 0;
};

/// Writes each space as U+2581, as SentencePiece does.
class SpaceMarks : public BpeNormalizer {
 public:
  /// Returns one space at a time, so that the offsets between spaces stay known.
  Change next_change(std::string_view text, size_t begin) const override;
  void append_normalized(std::string_view part, std::string& result) const override;
  size_t last_cut(std::string_view text, size_t) const override { return text.size(); }
};

}  // namespace tessera
