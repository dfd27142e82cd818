#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentencepiece/text_normalizer.h"

// normalize() walks over the original. put_plain(), put_space() and put_part() put runs that stay
// as they are, spaces and all other parts into text_, and trim and mark spaces.

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
  void begin(bool starts) {
    raw_.clear();
    text_.clear();
    anchors_.clear();
    normalized_ = dropped_ = 0;
    has_begun_ = !starts;
    after_space_ = false;
    held_spaces_ = 0;
  }

  void add(std::string_view piece) {
    if (raw_.empty()) {
      raw_ = piece.substr(normalize(piece, false));
      return;
    }
    raw_ += piece;
    raw_.erase(0, normalize(raw_, false));
  }

  /// Ends the text.
  void finish() {
    normalize(raw_, true);
    raw_.clear();
    held_spaces_ = 0;
    if (has_begun_ && rules_.ends_with_dummy_space()) text_ += rules_.space();
  }

  /// Returns the normalised text that later text cannot change, without what was dropped.
  std::string_view text() const { return text_; }
  /// Drops the first `count` bytes of text().
  void drop(size_t count) {
    text_.erase(0, count);
    dropped_ += static_cast<int64_t>(count);
    const auto next = std::ranges::upper_bound(anchors_, dropped_, {}, &Anchor::text);
    if (next != anchors_.begin()) anchors_.erase(anchors_.begin(), next - 1);
  }

  /// Returns the number of bytes of the original before offset `position` of text(). Returns
  /// nothing if it is not known, or if a text from there on would be normalised differently.
  std::optional<int64_t> original(size_t position) const {
    const int64_t offset = dropped_ + static_cast<int64_t>(position);
    const auto next = std::ranges::upper_bound(anchors_, offset, {}, &Anchor::text);
    if (next == anchors_.begin()) return std::nullopt;
    const Anchor& anchor = *(next - 1);
    const int64_t beyond = offset - anchor.text;
    if (beyond > 0 && beyond >= static_cast<int64_t>(anchor.length)) return std::nullopt;
    return anchor.original + beyond;
  }

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
  /// Normalises the part of `text` that later text cannot change, and returns its length.
  size_t normalize(std::string_view text, bool ends) {
    size_t done = 0;
    while (done < text.size()) {
      const std::string_view rest = text.substr(done);
      const int64_t original = normalized_ + static_cast<int64_t>(done);
      if (const size_t length = rules_.plain_length(rest, ends); length > 0) {
        put_plain(rest.substr(0, length), original);
        done += length;
      } else if (rules_.begins_with_plain_space(rest, ends)) {
        put_space(original);
        ++done;
      } else {
        const TextNormalizer::Part part = rules_.first_part(rest);
        if (part.may_change && !ends) break;
        put_part(part.text, part.text.data() == rest.data(), original);
        done += part.length;
      }
    }
    normalized_ += static_cast<int64_t>(done);
    return done;
  }

  /// Returns whether `part` is a space at the text's beginning, which is removed. Otherwise begins
  /// the text, unless it has begun. If the rules say so, the text begins with a dummy space.
  bool begin_unless_space(std::string_view part) {
    if (has_begun_) return false;
    if (rules_.removes_extra_whitespace() && part == " ") return true;
    has_begun_ = true;
    after_space_ = rules_.removes_extra_whitespace();
    if (!rules_.begins_with_dummy_space()) return false;
    if (after_space_) {
      hold_spaces(1, std::nullopt);
    } else {
      text_ += rules_.space();
    }
    return false;
  }

  void put_plain(std::string_view run, int64_t original) {
    begin_unless_space(run);
    put_held_spaces();
    anchor(original, run.size());
    text_ += run;
    after_space_ = false;
  }

  void put_space(int64_t original) {
    if (begin_unless_space(" ") || after_space_) return;
    if (rules_.removes_extra_whitespace()) {
      hold_spaces(1, original);
      after_space_ = true;
    } else {
      anchor(original, 0);
      text_ += rules_.space();
    }
  }

  /// Puts a character or a replacement. `kept` is set if it is unchanged from the original.
  void put_part(std::string_view part, bool kept, int64_t original) {
    if (part == " ") {
      put_space(original);
      return;
    }
    begin_unless_space(part);
    std::optional<int64_t> offset = original;
    while (after_space_ && part.starts_with(' ')) {
      part.remove_prefix(1);
      offset.reset();  // what is left of the part begins at no offset of the original
    }
    if (part.empty()) return;
    after_space_ = rules_.removes_extra_whitespace() && part.ends_with(' ');
    if (rules_.escapes_whitespace() && part.find(' ') != std::string_view::npos) {
      escaped_.clear();
      for (const char byte : part) {
        if (byte == ' ') {
          escaped_ += rules_.space();
        } else {
          escaped_ += byte;
        }
      }
      part = escaped_;
      kept = false;
    }
    size_t spaces = 0;  // at the end of the part
    while (rules_.removes_extra_whitespace() && part.ends_with(rules_.space())) {
      part.remove_suffix(rules_.space().size());
      ++spaces;
    }
    if (!part.empty()) {
      put_held_spaces();
      if (offset) anchor(*offset, kept ? part.size() : 0);
      text_ += part;
      offset.reset();  // nor do the spaces after it
    }
    hold_spaces(spaces, offset);
  }

  /// Holds spaces back: they are removed if the text ends here.
  void hold_spaces(size_t count, std::optional<int64_t> original) {
    if (held_spaces_ == 0) held_original_ = original;
    held_spaces_ += count;
  }

  void put_held_spaces() {
    if (held_spaces_ == 0) return;
    if (held_original_) anchor(*held_original_, 0);
    for (; held_spaces_ > 0; --held_spaces_) text_ += rules_.space();
  }

  /// Records an anchor at the end of text_, or lengthens the last one.
  void anchor(int64_t original, size_t length) {
    const int64_t text = dropped_ + static_cast<int64_t>(text_.size());
    if (!anchors_.empty() && length > 0) {
      Anchor& last = anchors_.back();
      const auto last_length = static_cast<int64_t>(last.length);
      if (last_length > 0 && last.text + last_length == text &&
          last.original + last_length == original) {
        last.length += length;
        return;
      }
    }
    anchors_.push_back({text, original, length});
  }

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
