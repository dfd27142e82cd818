#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "data/bpe/bpe_model.h"

namespace tessera {

/// An offset in a text and the number of tokens before it.
struct TokenCut {
  int64_t offset;
  int64_t tokens;
};

/// An encoder of a piece that arrives in parts. The tokens are those that BpeModel::encode() gives
/// for the whole piece. Memory does not grow with the piece.
///
/// Two facts make the result exact, for merges of any ranks.
///
/// (1) If a token of merge(s) ends at p, merge(s) is merge(s[:p]) followed by merge(s[p:]). No
/// merge crossed p, so each side had the same merges, in the same order, as it has alone.
///
/// (2) Take a row of tokens in which every two neighbours are the result of merge() of their bytes.
/// Then the row is the result of merge() of all its bytes: the first merge across the end of a
/// token would also be made in the two tokens beside that end.
///
/// Let s be the bytes known so far, and i an offset at which a token that reaches beyond s may
/// begin. By (1), a token that is in merge(s[:i]) for each such i is in every continuation. By
/// (2), merge(s[:i]) can be joined from merge(s) and a merge of the end of s[:i] at a token that
/// both have.
class OpenPiece {
 public:
  explicit OpenPiece(const BpeModel& model) : model_(model) {}

  /// Begins another piece. `offset` is its offset in its text.
  void begin(int64_t offset) {
    text_.clear();
    offset_ = offset;
    gave_tokens_ = false;
    merge_size_ = std::max(kWindow, 2 * model_.longest_token());
  }

  /// Appends to `tokens` those that are certain: later bytes cannot change them. Appends to `ends`,
  /// unless null, the offset at which each of them ends, except for offsets inside a character.
  void add(std::string_view bytes, std::vector<int32_t>& tokens, std::vector<TokenCut>* ends) {
    text_ += bytes;
    if (text_.size() < merge_size_) return;
    model_.merge(text_, scratch_);
    merged_.swap(scratch_.tokens);
    ends_.clear();
    size_t end = 0;
    for (const int32_t token : merged_) ends_.push_back(end += model_.byte_length(token));
    pass_on(count_certain(), tokens, ends);
    merge_size_ = std::max({kWindow, 2 * model_.longest_token(), 2 * text_.size()});
  }

  /// Ends the piece and appends the remaining tokens and ends.
  void finish(std::vector<int32_t>& tokens, std::vector<TokenCut>* ends) {
    merged_.clear();
    if (gave_tokens_) {
      model_.merge(text_, scratch_);
      merged_.swap(scratch_.tokens);
    } else {
      model_.encode(text_, scratch_, merged_);
    }
    ends_.clear();
    size_t end = 0;
    for (const int32_t token : merged_) ends_.push_back(end += model_.byte_length(token));
    pass_on(merged_.size(), tokens, ends);
  }

  /// The length in bytes beyond which a piece is better added in parts than encoded as a whole.
  static constexpr size_t kWindow = size_t{16} << 10;

 private:
  /// Returns the number of merged_'s tokens that are certain.
  size_t count_certain() {
    // All tokens are certain if one ends at the end of the text. Otherwise a token that reaches
    // further begins at an offset from which on the text is the beginning of a token.
    size_t certain = merged_.size();
    const std::string_view text = text_;
    const size_t furthest = std::min(text.size(), model_.longest_token());
    for (size_t back = 1; back < furthest && certain > 0; ++back) {
      const size_t end = text.size() - back;
      if (model_.is_token_prefix(text.substr(end))) certain = std::min(certain, count_common(end));
    }
    return certain;
  }

  /// Returns the number of tokens with which both merged_ and merge(text_[:end]) begin.
  size_t count_common(size_t end) {
    const std::string_view text = text_;
    for (size_t length = 8 * model_.longest_token();; length *= 2) {
      // Start at the last token end that leaves at least `length` bytes.
      const size_t limit = end > length ? end - length : 0;
      size_t i = static_cast<size_t>(std::ranges::upper_bound(ends_, limit) - ends_.begin());
      size_t token_begin = i > 0 ? ends_[i - 1] : 0;
      const size_t begin = token_begin;
      model_.merge(text.substr(begin, end - begin), scratch_);
      bool joined = begin == 0;  // or joined at a token that both have
      for (const int32_t token : scratch_.tokens) {
        const size_t token_end = token_begin + model_.byte_length(token);
        while (i < ends_.size() && ends_[i] < token_end && !joined) ++i;
        const bool common = i < ends_.size() && ends_[i] == token_end && merged_[i] == token &&
                            (i > 0 ? ends_[i - 1] : 0) == token_begin;
        if (joined && !common) return i;
        joined = joined || common;
        if (common) ++i;
        token_begin = token_end;
      }
      if (joined) return i;
    }
  }

  /// Appends the first `count` of merged_ to `tokens`, and drops their text.
  void pass_on(size_t count, std::vector<int32_t>& tokens, std::vector<TokenCut>* ends) {
    if (count == 0) return;
    for (size_t i = 0; i < count; ++i) {
      tokens.push_back(merged_[i]);
      // A character that fell back to its bytes is not cut.
      const bool inside = ends_[i] < text_.size() && is_inside_character(text_[ends_[i]]);
      if (ends != nullptr && !inside) {
        ends->push_back(
            {offset_ + static_cast<int64_t>(ends_[i]), static_cast<int64_t>(tokens.size())});
      }
    }
    gave_tokens_ = true;
    text_.erase(0, ends_[count - 1]);
    offset_ += static_cast<int64_t>(ends_[count - 1]);
  }

  const BpeModel& model_;
  BpeModel::Scratch scratch_;
  std::string text_;             // the text whose tokens are not certain yet
  int64_t offset_ = 0;           // the offset of `text_` in the whole text
  bool gave_tokens_ = false;     // true if some tokens of the piece have been passed on
  size_t merge_size_ = kWindow;  // the size of `text_` at which it is merged again
  std::vector<int32_t> merged_;  // merge(text_)
  std::vector<size_t> ends_;     // the offsets in text_ at which merged_'s tokens end
};

}  // namespace tessera
