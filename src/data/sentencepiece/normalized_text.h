#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentencepiece/text_normalizer.h"

namespace tessera {

/// The normal form of a text that arrives in pieces, by the rules of a model. The text as it
/// arrives is called the original. Text whose normal form depends on later pieces is held back: a
/// longer rule may apply to it, or it is spaces, which are removed if the text ends there.
class NormalizedText {
 public:
  /// `rules` must outlive this object.
  explicit NormalizedText(const TextNormalizer& rules) : rules_(rules) {}

  /// Resets the object. If `starts` is set, the text begins here. Otherwise it continues within a
  /// text, at an offset after which nothing depends on the text before.
  void begin(bool starts);
  void add(std::string_view piece);
  /// Ends the text.
  void finish();

  /// Returns the normalised text that later text cannot change, without what was dropped.
  std::string_view text() const { return text_; }
  /// Drops the first `count` bytes of text().
  void drop(size_t count);

  /// Returns the number of bytes of the original before offset `position` of text(). Returns
  /// nothing if it is not known, or if a text from there on would be normalised differently.
  std::optional<int64_t> original(size_t position) const;

  /// Returns the bytes of memory in use.
  size_t held_bytes() const {
    return raw_.size() + text_.size() + anchors_.size() * sizeof(Anchor);
  }

 private:
  /// An offset in the text whose offset in the original is known. From there on, for `length`
  /// bytes, the text equals the original.
  struct Anchor {
    int64_t text;  // bytes from the start of the whole text
    int64_t original;
    size_t length;
  };

  // In these functions, `original` is the offset in the original of what is put into text_.
  size_t normalize(std::string_view text, bool ends);
  bool begin_unless_space(std::string_view part);
  void put_plain(std::string_view run, int64_t original);
  void put_space(int64_t original);
  /// Puts a character or a replacement. `kept` is set if it is unchanged from the original.
  void put_part(std::string_view part, bool kept, int64_t original);
  /// Holds spaces back: they are removed if the text ends here.
  void hold_spaces(size_t count, std::optional<int64_t> original);
  void put_held_spaces();
  /// Records an anchor at the end of text_, or lengthens the last one.
  void anchor(int64_t original, size_t length);

  const TextNormalizer& rules_;
  std::string raw_;  // not normalised yet
  std::string text_;
  std::string escaped_;
  std::vector<Anchor> anchors_;
  int64_t normalized_ = 0;    // bytes of the original that are normalised
  int64_t dropped_ = 0;       // bytes of the text that drop() removed
  bool has_begun_ = false;    // past the spaces at the text's beginning
  bool after_space_ = false;  // after a space that no other space may follow
  size_t held_spaces_ = 0;
  std::optional<int64_t> held_original_;  // the offset of the first of them in the original
};

}  // namespace tessera
