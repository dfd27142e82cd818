#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/bpe_model.h"

namespace tessera {

/// A place of a text and how many tokens stand before it.
struct TokenPlace {
  int64_t place;
  int64_t tokens;
};

/// The tokens of a piece that arrives bit by bit: those of BpeModel::encode() of the whole, in
/// memory that does not grow with it.
///
/// What makes it exact, for merges of any ranks:
///  (1) Where a token of merge(s) ends at p, merge(s) is merge(s[:p]) and merge(s[p:]): no merge
///      went across p, and each side's merges came in the order in which they come without the
///      other.
///  (2) A row of tokens of which every two neighbours are what merge() makes of their bytes is what
///      merge() makes of all bytes: the first merge across an end of such a token would also be
///      made in the two tokens beside it.
/// So of the bytes s that are known, a token that stands in merge(s[:i]) for each i at which the
/// token that will reach beyond s may begin stands in every continuation (1), and merge(s[:i]) is
/// joined from merge(s) and a merge of s[:i]'s end where the two have a token in common (2).
class OpenPiece {
 public:
  explicit OpenPiece(const BpeModel& model) : model_(model) {}

  /// Begins another piece, at `place` of its text.
  void begin(int64_t place);
  /// Appends to `tokens` those that are certain, and to `ends`, unless null, where each ends.
  void add(std::string_view bytes, std::vector<int32_t>& tokens, std::vector<TokenPlace>* ends);
  void finish(std::vector<int32_t>& tokens, std::vector<TokenPlace>* ends);

  /// Longer pieces are better added than encoded as a whole.
  static constexpr size_t kWindow = size_t{16} << 10;

 private:
  /// How many of merged_'s tokens are certain.
  size_t count_settled();
  /// How many of them merge(text_[:end]) has too, from the first one on.
  size_t count_common(size_t end);
  void give(size_t count, std::vector<int32_t>& tokens, std::vector<TokenPlace>* ends);

  const BpeModel& model_;
  BpeModel::Scratch scratch_;
  std::string text_;             // whose tokens are not certain
  int64_t place_ = 0;            // of the text's begin
  bool begun_ = false;           // some tokens have been given
  size_t wanted_ = kWindow;      // the text that is worth another look
  std::vector<int32_t> merged_;  // merge(text_)
  std::vector<size_t> ends_;     // of its tokens
};

}  // namespace tessera
