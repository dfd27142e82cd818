#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sentencepiece/bpe_merger.h"
#include "data/sentencepiece/byte_trie.h"
#include "data/sentencepiece/model_description.h"
#include "data/sentencepiece/text_normalizer.h"
#include "data/sentencepiece/unigram_model.h"
#include "data/sentencepiece/unknown_text.h"
#include "data/sentencepiece/word_cache.h"
#include "data/sentencepiece/word_cuts.h"

namespace tessera {

/// Text to the ids that the SentencePiece library gives, in a fraction of the time: text is cut
/// into words over which no piece lies, and most words have been met before. Immutable.
class SentencePieceEncoder {
 public:
  /// Memory that encode() uses anew at each call; one thread at a time.
  struct Scratch {
    std::string normalized;
    WordCache words;
    SentencePieceUnigram::Scratch unigram;
    SentencePieceMerger::Scratch merger;
  };

  /// The encoder of a model that the library has taken; null where why_not() has a reason.
  static std::unique_ptr<SentencePieceEncoder> create(const SentencePieceDescription& description,
                                                      CharacterMap character_map);

  /// What the model has that only the library encodes: whole words or single characters as pieces,
  /// pieces or replacements of characters that are broken UTF-8, scores that are not finite or no
  /// logarithms of probabilities (unigram), pieces out of use or control pieces that text can spell
  /// (BPE). "" where it has nothing of these.
  static std::string why_not(const SentencePieceDescription& description,
                             const CharacterMap& character_map);

  /// The tokens of `text`. Each byte that is part of no valid character counts as U+FFFD.
  std::vector<int32_t> encode(std::string_view text, Scratch& scratch) const;

 private:
  SentencePieceEncoder(const SentencePieceDescription& description, CharacterMap character_map);

  /// Text without user-defined symbols that stay whole.
  void encode_words(std::string_view text, float& sum, Scratch& scratch,
                    std::vector<int32_t>& tokens) const;
  void encode_word(std::string_view word, float& sum, Scratch& scratch,
                   std::vector<int32_t>& tokens) const;
  bool append_known(const WordCache::Entry& entry, float& sum, std::vector<int32_t>& tokens) const;
  void encode_around_symbols(std::string_view text, Scratch& scratch,
                             std::vector<int32_t>& tokens) const;

  ByteTrie symbols_;  // user-defined
  TextNormalizer normalizer_;
  UnknownText unknown_;
  WordCuts cuts_;
  std::optional<SentencePieceUnigram> unigram_;  // one of the two
  std::optional<SentencePieceMerger> merger_;
};

}  // namespace tessera
