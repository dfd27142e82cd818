#pragma once

#include <memory>
#include <string>

#include "data/scratch_pool.h"
#include "data/sentencepiece/encoder.h"
#include "data/tokenizer.h"

namespace tessera {

/// A SentencePiece model. Its end-of-sentence piece ends a document. The ids are those of the
/// SentencePiece library, which reads the model, trains, decodes, and encodes with the few kinds of
/// model that SentencePieceEncoder does not take; why_slow() tells of which kind it is.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` is the content of a .model file; `origin` names it in errors. Throws Error when it is
  /// no SentencePiece model, is damaged, or has no end-of-sentence piece.
  SentencePieceTokenizer(std::string model, const std::string& origin);
  ~SentencePieceTokenizer() override;

  /// Adds no beginning-of-sentence piece. With a model from train_tokenizer(), decode() gives back
  /// `text` byte for byte; other models normalise as they were trained to.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  int64_t vocabulary_size() const override;
  int32_t end_of_document() const override;
  std::optional<int32_t> control_token(std::string_view spelled) const override;
  std::string kind() const override { return "sentencepiece"; }
  std::string fingerprint() const override;
  std::string why_slow() const override { return why_library_; }
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.model", model_}}; }

 private:
  struct Processor;
  void append_encoded(std::string_view text, std::vector<int32_t>& tokens) const;

  std::string model_;
  std::unique_ptr<Processor> processor_;
  std::string why_library_;                        // encodes; "" where encoder_ does
  std::unique_ptr<SentencePieceEncoder> encoder_;  // null where the library encodes
  mutable ScratchPool<SentencePieceEncoder::Scratch> scratch_;
  /// The byte pieces that spell U+2581, where encode() must use them; otherwise empty.
  std::vector<int32_t> space_mark_bytes_;
};

}  // namespace tessera
