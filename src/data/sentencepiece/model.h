#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/sentencepiece/bpe_merger.h"
#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/library.h"
#include "data/sentencepiece/model_description.h"
#include "data/sentencepiece/stretch_encoder.h"
#include "data/sentencepiece/text_normalizer.h"
#include "data/sentencepiece/unknown_text.h"
#include "data/sentencepiece/word_cuts.h"

namespace tessera {

/// A SentencePiece model and the encoder for it: our own byte-pair encoding if it supports the
/// model, which takes a fraction of the library's time, otherwise the library. Normalised text is
/// encoded in stretches. Immutable.
class SentencePieceModel {
 public:
  /// `file` is the content of a .model file, and `origin` names it in errors. Throws Error when it
  /// is not a SentencePiece model or is damaged.
  SentencePieceModel(std::string_view file, const std::string& origin);

  const SentencePieceDescription& description() const { return description_; }
  const SentencePieceLibrary& library() const { return library_; }
  const TextNormalizer& normalizer() const { return normalizer_; }
  const UnknownText& unknown() const { return unknown_; }

  /// Returns why a byte-pair encoding is left to the library, or "": the model has unused pieces,
  /// control pieces that text can spell, or pieces that are broken UTF-8.
  const std::string& why_slow() const { return why_slow_; }

  std::unique_ptr<StretchEncoder> stretch_encoder() const;
  /// Returns the user-defined symbols that the encoder of stretch_encoder() must not be given. They
  /// are empty if the encoder finds them itself.
  const ByteTrie& symbols_apart() const { return merger_ ? symbols_ : no_symbols_; }
  /// Returns whether the tokens may depend on the rounded sum of a stretch's scores. It is true for
  /// every model that the library encodes. Such a model gets long stretches, so the ids of all but
  /// long texts equal the library's.
  bool adds_scores() const { return !merger_; }
  /// Returns whether the following holds: if a token of a stretch ends at p, the tokens up to p are
  /// those of the text before p alone.
  bool prefixes_have_same_tokens() const;

  /// Returns the length of the first part of normalised `text` that can be encoded by itself.
  /// Returns the length of `text` if no part ends within it. For `begin` see WordCuts.
  size_t first_word_length(std::string_view text, size_t begin) const;
  bool is_piece(std::string_view text) const { return !library_.is_unknown(library_.id(text)); }
  /// Returns the length of the longest piece in bytes.
  size_t longest_piece() const { return longest_piece_; }

 private:
  SentencePieceDescription description_;
  SentencePieceLibrary library_;
  ByteTrie symbols_;  // user-defined
  ByteTrie no_symbols_{{}};
  TextNormalizer normalizer_;
  UnknownText unknown_;
  WordCuts cuts_;
  size_t longest_piece_ = 1;
  std::string why_slow_;
  std::optional<SentencePieceMerger> merger_;                 // one of these two is set
  std::unique_ptr<SentencePieceLibrary> normalized_library_;  // does not normalise text
};

}  // namespace tessera
