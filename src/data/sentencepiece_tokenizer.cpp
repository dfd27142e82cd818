#include "data/sentencepiece_tokenizer.h"

#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& origin)
    : file_(std::move(model)), model_(file_, origin) {
  if (model_.library().end_of_sentence() < 0) {
    throw Error(
        "the SentencePiece model {} has no end-of-sentence piece, which ends a document; train it "
        "with eos_id >= 0",
        origin);
  }
  // A model with byte pieces and without a dummy space can keep a U+2581 of the text apart from its
  // own spaces: spelled in bytes, it decodes to itself. With a dummy space, each part around it
  // would get its own space, so such models keep SentencePiece's usual behaviour.
  const SentencePieceDescription& description = model_.description();
  if (description.adds_dummy_space || !description.byte_fallback) return;
  for (const unsigned char byte : kSpaceMark) {
    space_mark_bytes_.push_back(model_.library().id(fmt::format("<0x{:02X}>", byte)));
  }
}

std::unique_ptr<SentencePieceDocumentEncoder> SentencePieceTokenizer::make_encoder() const {
  return std::make_unique<SentencePieceDocumentEncoder>(model_, space_mark_bytes_);
}

std::unique_ptr<DocumentEncoder> SentencePieceTokenizer::document_encoder() const {
  return make_encoder();
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  const auto encoder = encoders_.lease([&] { return make_encoder(); });
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3);
  std::vector<DocumentEncoder::Boundary> boundaries;
  encoder->begin(true);
  encoder->add(text, tokens, boundaries);
  encoder->finish(tokens, boundaries);
  return tokens;
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size()) {
      throw Error("token {} is outside the tokenizer's vocabulary of {}", token, vocabulary_size());
    }
  }
  return model_.library().decode(tokens);
}

int64_t SentencePieceTokenizer::vocabulary_size() const { return model_.library().piece_count(); }

int32_t SentencePieceTokenizer::end_of_document() const {
  return model_.library().end_of_sentence();
}

std::optional<int32_t> SentencePieceTokenizer::control_token(std::string_view spelling) const {
  const SentencePieceLibrary& library = model_.library();
  const int32_t id = library.id(spelling);
  if (!library.is_control(id) || library.piece(id) != spelling) return std::nullopt;
  return id;
}

std::string SentencePieceTokenizer::fingerprint() const { return hash_text(hash(file_)); }

}  // namespace tessera
