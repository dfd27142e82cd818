#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/bpe/byte_string_map.h"
#include "data/bpe/merge_table.h"
#include "data/sentencepiece/model_description.h"
#include "data/sentencepiece/stretch_encoder.h"
#include "data/sentencepiece/unknown_text.h"

namespace tessera {

/// The byte-pair encoding of SentencePiece. A word is a row of symbols, at first its characters. A
/// symbol is a piece, or a character that occurs only in longer pieces. Two neighbours that
/// together spell a piece become that piece. The pair whose piece has the highest score is merged
/// first; of equal scores, the leftmost.
class SentencePieceMerger {
 public:
  /// Memory that encode() reuses in each call. One thread at a time may use it.
  struct Scratch {
    MergeTable::Scratch merge;
    std::vector<int32_t> symbols;
  };

  /// supports() must accept `description`. `unknown` must outlive this object.
  SentencePieceMerger(const SentencePieceDescription& description, const UnknownText& unknown);

  /// Returns whether text can only become normal pieces and user-defined symbols, and all pieces
  /// are valid UTF-8.
  static bool supports(const SentencePieceDescription& description);

  /// Appends the tokens of `word`, which contains no user-defined symbol: the caller encodes those
  /// apart. Returns whether all characters of the word are in pieces.
  bool encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& tokens) const;
  /// Returns the tokens of `word` alone, with their ends.
  std::vector<StretchEncoder::Token> encode_with_ends(std::string_view word,
                                                      Scratch& scratch) const;
  /// Returns an encoder with a cache of recent words. This object must outlive the encoder.
  std::unique_ptr<StretchEncoder> stretch_encoder() const;

 private:
  void merge(std::string_view word, Scratch& scratch) const;
  int32_t symbol_of(std::string_view character) const {
    if (character.size() == 1) return ascii_symbols_[static_cast<unsigned char>(character.front())];
    const int32_t symbol = non_ascii_->find(character);
    return symbol == ByteStringMap::kNone ? unknown_symbol_ : symbol;
  }

  const UnknownText& unknown_;
  std::vector<uint32_t> piece_sizes_;  // [pieces], in bytes
  int32_t unknown_symbol_ = 0;         // for a character that is in no piece
  std::array<int32_t, 128> ascii_symbols_{};
  std::unique_ptr<ByteStringMap> non_ascii_;  // symbols of characters outside ASCII
  std::unique_ptr<MergeTable> merges_;
};

}  // namespace tessera
