#include "data/bpe/open_piece.h"

#include <algorithm>

#include "base/utf8.h"

namespace tessera {

void OpenPiece::begin(int64_t offset) {
  text_.clear();
  offset_ = offset;
  begun_ = false;
  wanted_ = std::max(kWindow, 2 * model_.longest_token());
}

void OpenPiece::add(std::string_view bytes, std::vector<int32_t>& tokens,
                    std::vector<TokenCut>* ends) {
  text_ += bytes;
  if (text_.size() < wanted_) return;
  model_.merge(text_, scratch_);
  merged_.swap(scratch_.tokens);
  ends_.clear();
  size_t end = 0;
  for (const int32_t token : merged_) ends_.push_back(end += model_.byte_length(token));
  pass_on(count_certain(), tokens, ends);
  wanted_ = std::max({kWindow, 2 * model_.longest_token(), 2 * text_.size()});
}

void OpenPiece::finish(std::vector<int32_t>& tokens, std::vector<TokenCut>* ends) {
  merged_.clear();
  if (begun_) {
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

void OpenPiece::pass_on(size_t count, std::vector<int32_t>& tokens, std::vector<TokenCut>* ends) {
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
  begun_ = true;
  text_.erase(0, ends_[count - 1]);
  offset_ += static_cast<int64_t>(ends_[count - 1]);
}

size_t OpenPiece::count_certain() {
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

size_t OpenPiece::count_common(size_t end) {
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

}  // namespace tessera
