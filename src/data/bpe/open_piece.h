#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe/bpe_model.h"

namespace tessera {

/// A place of a text and the number of tokens before it.
struct TokenPlace {
  int64_t place;
  int64_t tokens;
};

/// Encodes a piece that arrives in parts. The tokens are those that BpeModel::encode() gives for
/// the whole piece. Memory does not grow with the piece.
///
/// Two facts make the result exact, for merges of any ranks.
///
/// (1) If a token of merge(s) ends at p, merge(s) is merge(s[:p]) followed by merge(s[p:]). No
/// merge crossed p, and the merges of each side came in the order they have without the other side.
///
/// (2) Take a row of tokens in which every two neighbours are what merge() makes of their bytes.
/// Then the row is what merge() makes of all its bytes: the first merge across the end of a token
/// would also be made in the two tokens beside that end.
///
/// Let s be the bytes known so far. Some token may reach beyond s; let i be a place where it may
/// begin. By (1), a token that is in merge(s[:i]) for each such i is in every continuation. By (2),
/// merge(s[:i]) can be joined from merge(s) and a merge of the end of s[:i] at a token that both
/// have.
class OpenPiece {
 public:
  explicit OpenPiece(const BpeModel& model) : model_(model) {}

  /// Begins another piece. `place` is where it begins in its text.
  void begin(int64_t place);
  /// Appends to `tokens` those that are certain. Appends to `ends`, unless null, where each of them
  /// ends.
  void add(std::string_view bytes, std::vector<int32_t>& tokens, std::vector<TokenPlace>* ends);
  void finish(std::vector<int32_t>& tokens, std::vector<TokenPlace>* ends);

  /// A piece longer than this is better added in parts than encoded as a whole.
  static constexpr size_t kWindow = size_t{16} << 10;

 private:
  /// Returns how many of merged_'s tokens are certain.
  size_t count_settled();
  /// Returns how many tokens merged_ and merge(text_[:end]) have in common at their start.
  size_t count_common(size_t end);
  void give(size_t count, std::vector<int32_t>& tokens, std::vector<TokenPlace>* ends);

  const BpeModel& model_;
  BpeModel::Scratch scratch_;
  std::string text_;             // the text whose tokens are not certain yet
  int64_t place_ = 0;            // of the begin of `text_`
  bool begun_ = false;           // whether some tokens have been given
  size_t wanted_ = kWindow;      // the size of `text_` at which to look again
  std::vector<int32_t> merged_;  // merge(text_)
  std::vector<size_t> ends_;     // of merged_'s tokens
};

}  // namespace tessera
