#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/scratch_pool.h"
#include "data/sentencepiece/document_encoder.h"
#include "data/sentencepiece/model.h"
#include "data/tokenizer.h"

namespace tessera {

/// A tokenizer that a SentencePiece model defines. The end-of-sentence piece ends a document. The
/// ids equal those of the SentencePiece library, with two exceptions: a U+2581 in the text may be
/// spelled in bytes (see space_mark_bytes_), and in long documents sums of scores may round
/// differently (see SentencePieceDocumentEncoder). The library reads the model, trains and decodes.
/// It also encodes with the models that SentencePieceMerger does not support.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// `model` is the content of a .model file, and `origin` names it in errors. Throws Error when it
  /// is not a SentencePiece model, is damaged, or has no end-of-sentence piece.
  SentencePieceTokenizer(std::string model, const std::string& origin);

  /// Encodes without a beginning-of-sentence piece. With a model from train_tokenizer(), decode()
  /// restores `text` byte for byte. Other models normalise as they were trained to.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::unique_ptr<DocumentEncoder> document_encoder() const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  int64_t vocabulary_size() const override;
  int32_t end_of_document() const override;
  std::optional<int32_t> control_token(std::string_view spelling) const override;
  std::string kind() const override { return "sentencepiece"; }
  std::string fingerprint() const override;
  std::string why_slow() const override { return model_.why_slow(); }
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.model", file_}}; }

 private:
  std::unique_ptr<SentencePieceDocumentEncoder> make_encoder() const;

  std::string file_;
  SentencePieceModel model_;
  mutable ScratchPool<SentencePieceDocumentEncoder> encoders_;
  /// The byte pieces by which encode() spells a U+2581, so that decode() restores it. Empty if the
  /// model has no such pieces or adds a dummy space; U+2581 then counts as a space.
  std::vector<int32_t> space_mark_bytes_;
};

}  // namespace tessera
