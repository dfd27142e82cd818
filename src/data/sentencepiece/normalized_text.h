#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentencepiece/text_normalizer.h"

namespace tessera {

/// A text that arrives in pieces, normalised as a model says. What later pieces decide is held
/// back: rules that more text may lengthen, and spaces at the end, which are removed from a text's
/// end.
class NormalizedText {
 public:
  /// `rules` must outlive this.
  explicit NormalizedText(const TextNormalizer& rules) : rules_(rules) {}

  /// Forgets all. `starts`: the text begins here; otherwise it goes on within a text, at a place
  /// after which nothing depends on what stands before.
  void begin(bool starts);
  void add(std::string_view piece);
  /// The text ends.
  void finish();

  /// What nothing that follows can change, without what was dropped.
  std::string_view text() const { return text_; }
  /// Forgets the first `count` bytes of text().
  void drop(size_t count);

  /// How many bytes of the original stand before the place `position` of text(), where that is
  /// known and a text that goes on there has the same from there on.
  std::optional<int64_t> original(size_t position) const;

  /// Bytes of memory in use.
  size_t held_bytes() const {
    return raw_.size() + text_.size() + anchors_.size() * sizeof(Anchor);
  }

 private:
  /// From here on, for `length` bytes, the text is the original.
  struct Anchor {
    int64_t text;  // in bytes from the beginning
    int64_t original;
    size_t length;
  };

  size_t take(std::string_view text, bool ends);
  bool starts_with_space(std::string_view part);
  void put_plain(std::string_view run, int64_t original);
  void put_space(int64_t original);
  /// `kept`: it is the original's.
  void put_part(std::string_view part, bool kept, int64_t original);
  void hold_spaces(size_t count, std::optional<int64_t> original);
  void put_held_spaces();
  void anchor(int64_t original, size_t length);

  const TextNormalizer& rules_;
  std::string raw_;  // not normalised yet
  std::string text_;
  std::string escaped_;
  std::vector<Anchor> anchors_;
  int64_t taken_ = 0;         // bytes of the original, normalised
  int64_t dropped_ = 0;       // bytes of the text
  bool within_ = false;       // the spaces at the text's beginning lie behind
  bool after_space_ = false;  // of which no other may follow
  size_t held_spaces_ = 0;
  std::optional<int64_t> held_original_;  // the place of the first of them
};

}  // namespace tessera
