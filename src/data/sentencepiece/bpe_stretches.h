#pragma once

#include "data/sentencepiece/bpe_merger.h"
#include "data/sentencepiece/stretch_encoder.h"
#include "data/sentencepiece/word_cache.h"

namespace tessera {

/// An encoder of stretches by our own byte-pair encoding. A cache holds the tokens of recent words.
class BpeStretches : public StretchEncoder {
 public:
  /// `merger` must outlive this object.
  explicit BpeStretches(const SentencePieceMerger& merger) : merger_(merger) {}

  void encode(std::string_view stretch, std::vector<int32_t>& tokens) override;
  std::vector<Token> encode_with_ends(std::string_view stretch) override {
    return merger_.encode_with_ends(stretch, scratch_);
  }

 private:
  const SentencePieceMerger& merger_;
  SentencePieceMerger::Scratch scratch_;
  WordCache words_;
};

}  // namespace tessera
