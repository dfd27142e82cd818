#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/model_description.h"
#include "data/sentencepiece/unknown_text.h"

namespace tessera {

/// The unigram language model of SentencePiece (Kudo 2018, "Subword Regularization"): of all ways
/// to cut a text into pieces the one with the largest sum of scores.
///
/// The library adds the scores of a text from its beginning in single precision, so that rounding
/// decides between nearly equal ways, and differently as the sum grows. To give the same ids, each
/// word is encoded from the sum that the text before it has come to, and a word's tokens are known
/// for later only together with the sums up to which no rounding can change them.
class SentencePieceUnigram {
 public:
  /// Memory that encode() uses anew at each call; one thread at a time.
  struct Scratch {
    struct End {
      float sum;       // of the best way to here
      uint32_t begin;  // of its last piece
      int32_t id;
    };
    struct Ways {
      double best;
      double second;
      uint32_t pieces;  // of the longest way, at most
    };
    std::vector<End> ends;
    std::vector<Ways> ways;
    std::vector<uint32_t> path;
  };

  /// For a description that takes() takes; `unknown` outlives this.
  SentencePieceUnigram(const SentencePieceDescription& description, const UnknownText& unknown);

  /// Whether scores are such that the sums only fall, as those of probabilities do.
  static bool takes(const SentencePieceDescription& description);

  /// Adds the tokens of `word` after text of score `sum`, and the word's score to `sum`. Gives
  /// whether all its characters are in pieces.
  bool encode(std::string_view word, float& sum, Scratch& scratch,
              std::vector<int32_t>& tokens) const;

  /// The magnitude of the sum after `word`, all of whose characters are in pieces, below which its
  /// tokens are the same whatever stood before it; 0 where there is none.
  float limit(std::string_view word, Scratch& scratch) const;

  /// Adds the score of a token as the library does.
  void add(int32_t token, float& sum) const {
    sum = static_cast<float>(scores_[static_cast<size_t>(token)] + double{sum});
  }

 private:
  template <typename Visit>
  void each_piece(std::string_view word, size_t begin, const Visit& visit) const;

  const UnknownText& unknown_;
  std::vector<double> scores_;  // [pieces]
  float unknown_score_ = 0;
  std::unique_ptr<ByteTrie> trie_;
};

}  // namespace tessera
