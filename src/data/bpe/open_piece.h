#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  void begin(int64_t offset);
  /// Appends to `tokens` those that are certain: later bytes cannot change them. Appends to `ends`,
  /// unless null, the offset at which each of them ends, except for offsets inside a character.
  void add(std::string_view bytes, std::vector<int32_t>& tokens, std::vector<TokenCut>* ends);
  /// Ends the piece and appends the remaining tokens and ends.
  void finish(std::vector<int32_t>& tokens, std::vector<TokenCut>* ends);

  /// The length in bytes beyond which a piece is better added in parts than encoded as a whole.
  static constexpr size_t kWindow = size_t{16} << 10;

 private:
  /// Returns the number of merged_'s tokens that are certain.
  size_t count_certain();
  /// Returns the number of tokens with which both merged_ and merge(text_[:end]) begin.
  size_t count_common(size_t end);
  /// Appends the first `count` of merged_ to `tokens`, and drops their text.
  void pass_on(size_t count, std::vector<int32_t>& tokens, std::vector<TokenCut>* ends);

  const BpeModel& model_;
  BpeModel::Scratch scratch_;
  std::string text_;             // the text whose tokens are not certain yet
  int64_t offset_ = 0;           // the offset of `text_` in the whole text
  bool begun_ = false;           // true if some tokens of the piece have been passed on
  size_t wanted_ = kWindow;      // the size of `text_` at which it is merged again
  std::vector<int32_t> merged_;  // merge(text_)
  std::vector<size_t> ends_;     // the offsets in text_ at which merged_'s tokens end
};

}  // namespace tessera
