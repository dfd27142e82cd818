#include "data/sentencepiece_tokenizer.h"

#include <utility>

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/sentencepiece/character_map.h"
#include "data/sentencepiece/utf8_character.h"

namespace tessera {

struct SentencePieceTokenizer::Processor {
  sentencepiece::SentencePieceProcessor value;
};

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& origin)
    : model_(std::move(model)), processor_(std::make_unique<Processor>()) {
  const SentencePieceDescription description = read_sentencepiece_description(model_, origin);
  CharacterMap character_map(description.character_map, origin);  // the library does not check it
  auto& processor = processor_->value;
  const auto status = processor.LoadFromSerializedProto(model_);
  if (!status.ok()) {
    throw Error("{} is not a SentencePiece model ({}); give a .model file or the word 'bytes'",
                origin, status.message());
  }
  if (processor.eos_id() < 0) {
    throw Error(
        "the SentencePiece model {} has no end-of-sentence piece, which ends a document; train it "
        "with eos_id >= 0",
        origin);
  }
  why_library_ = SentencePieceEncoder::why_not(description, character_map);
  encoder_ = SentencePieceEncoder::create(description, std::move(character_map));
  // A model without a dummy space and with byte pieces can keep a U+2581 of the text apart from
  // its own: spelt in bytes, it decodes to itself. With a dummy space the parts around it would
  // each get a space of their own, so such models keep SentencePiece's usual behaviour.
  if (description.adds_dummy_space || !description.byte_fallback) return;
  for (const unsigned char byte : kSpaceMark) {
    space_mark_bytes_.push_back(processor.PieceToId(fmt::format("<0x{:02X}>", byte)));
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::append_encoded(std::string_view text,
                                            std::vector<int32_t>& tokens) const {
  if (encoder_) {
    const auto scratch = scratch_.lease();
    const std::vector<int32_t> ids = encoder_->encode(text, *scratch);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    return;
  }
  std::vector<int> ids;
  const auto status = processor_->value.Encode({text.data(), text.size()}, &ids);
  TESSERA_CHECK(status.ok(), "SentencePiece cannot encode: {}", status.message());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  while (!space_mark_bytes_.empty()) {
    const size_t mark = text.find(kSpaceMark);
    if (mark == std::string_view::npos) break;
    append_encoded(text.substr(0, mark), tokens);
    tokens.insert(tokens.end(), space_mark_bytes_.begin(), space_mark_bytes_.end());
    text.remove_prefix(mark + kSpaceMark.size());
  }
  append_encoded(text, tokens);
  return tokens;
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size()) {
      throw Error("token {} is outside the tokenizer's vocabulary of {}", token, vocabulary_size());
    }
  }
  std::string text;
  const auto status =
      processor_->value.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
  TESSERA_CHECK(status.ok(), "SentencePiece cannot decode: {}", status.message());
  return text;
}

int64_t SentencePieceTokenizer::vocabulary_size() const { return processor_->value.GetPieceSize(); }

int32_t SentencePieceTokenizer::end_of_document() const { return processor_->value.eos_id(); }

std::optional<int32_t> SentencePieceTokenizer::control_token(std::string_view spelled) const {
  const auto& processor = processor_->value;
  const int id = processor.PieceToId({spelled.data(), spelled.size()});
  if (!processor.IsControl(id) || processor.IdToPiece(id) != spelled) return std::nullopt;
  return id;
}

std::string SentencePieceTokenizer::fingerprint() const { return hash_text(hash(model_)); }

}  // namespace tessera
