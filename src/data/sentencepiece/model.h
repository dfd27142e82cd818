#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/sentencepiece/bpe_merger.h"
#include "data/sentencepiece/bpe_stretches.h"
#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/library.h"
#include "data/sentencepiece/model_description.h"
#include "data/sentencepiece/stretch_encoder.h"
#include "data/sentencepiece/text_normalizer.h"
#include "data/sentencepiece/unknown_text.h"
#include "data/sentencepiece/word_cuts.h"

namespace tessera {

/// A SentencePiece model and what encodes its text: our own byte-pair encoding where it can, in a
/// fraction of the library's time, otherwise the library. Immutable.
class SentencePieceModel {
 public:
  /// `file` is the content of a .model file; `origin` names it in errors. Throws Error when it is
  /// no SentencePiece model or is damaged.
  SentencePieceModel(std::string_view file, const std::string& origin);

  const SentencePieceDescription& description() const { return description_; }
  const SentencePieceLibrary& library() const { return library_; }
  const TextNormalizer& normalizer() const { return normalizer_; }
  const UnknownText& unknown() const { return unknown_; }

  /// Why a byte-pair encoding is left to the library: it has pieces out of use, control pieces that
  /// text can spell, or pieces that are broken UTF-8. "" where it is not.
  const std::string& why_slow() const { return why_slow_; }

  std::unique_ptr<StretchEncoder> stretches() const;
  /// The user-defined symbols that stretches() must not be given; empty where it finds them.
  const ByteTrie& symbols_apart() const { return merger_ ? symbols_ : none_; }
  /// Whether the sum of a stretch's scores decides, which is rounded: of such a model stretches are
  /// long, so that the ids of all but long texts are the library's bit for bit.
  bool adds_scores() const { return !merger_; }
  /// Whether the tokens of a stretch up to the end of any of them are those of its text to there.
  bool beginnings_hold() const;

  /// The length of the first part of normalised `text` that can be encoded by itself, the length of
  /// the text where that is one part as far as it goes. `from`: see WordCuts.
  size_t first_word(std::string_view text, size_t from) const;
  bool is_piece(std::string_view text) const { return !library_.is_unknown(library_.id(text)); }
  /// The bytes of the longest piece.
  size_t longest_piece() const { return longest_piece_; }

 private:
  SentencePieceDescription description_;
  SentencePieceLibrary library_;
  ByteTrie symbols_;  // user-defined
  ByteTrie none_{{}};
  TextNormalizer normalizer_;
  UnknownText unknown_;
  WordCuts cuts_;
  size_t longest_piece_ = 1;
  std::string why_slow_;
  std::optional<SentencePieceMerger> merger_;                 // one of the two
  std::unique_ptr<SentencePieceLibrary> normalized_library_;  // takes text as it is
};

}  // namespace tessera
