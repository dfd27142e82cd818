#include "data/sentencepiece/library.h"

#include <vector>

#include <sentencepiece_processor.h>

#include "base/error.h"

namespace tessera {
namespace {

/// An encoder that makes one library call per stretch.
class LibraryEncoder : public StretchEncoder {
 public:
  LibraryEncoder(const sentencepiece::SentencePieceProcessor& processor, const UnknownText& unknown)
      : processor_(processor), unknown_(unknown) {}

  void encode(std::string_view stretch, std::vector<int32_t>& tokens) override {
    check(processor_.Encode({stretch.data(), stretch.size()}, &ids_));
    auto first = ids_.begin();
    const bool joins = first != ids_.end() && unknown_.joins(*first) && !tokens.empty() &&
                       unknown_.joins(tokens.back());
    tokens.insert(tokens.end(), joins ? first + 1 : first, ids_.end());
  }

  std::vector<Token> encode_with_ends(std::string_view stretch) override {
    sentencepiece::ImmutableSentencePieceText text;
    check(processor_.Encode({stretch.data(), stretch.size()}, text.mutable_proto()));
    std::vector<Token> tokens;
    for (const auto& piece : text.pieces()) {
      tokens.push_back({static_cast<int32_t>(piece.id()), piece.end()});
    }
    return tokens;
  }

 private:
  static void check(const sentencepiece::util::Status& status) {
    if (status.ok()) return;
    throw Error(
        "the SentencePiece library cannot encode a part of the text ({}): a control piece of the "
        "model is spelled there; use a model whose control pieces no text becomes",
        status.message());
  }

  const sentencepiece::SentencePieceProcessor& processor_;
  const UnknownText& unknown_;
  std::vector<int> ids_;
};

}  // namespace

SentencePieceLibrary::SentencePieceLibrary(std::string_view model, const std::string& origin)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const auto status = processor_->LoadFromSerializedProto({model.data(), model.size()});
  if (!status.ok()) {
    throw Error("{} is not a SentencePiece model ({}); give a .model file or the word 'bytes'",
                origin, status.message());
  }
}

SentencePieceLibrary::~SentencePieceLibrary() = default;

int64_t SentencePieceLibrary::piece_count() const { return processor_->GetPieceSize(); }

int32_t SentencePieceLibrary::end_of_sentence() const { return processor_->eos_id(); }

int32_t SentencePieceLibrary::id(std::string_view piece) const {
  return processor_->PieceToId({piece.data(), piece.size()});
}

bool SentencePieceLibrary::is_unknown(int32_t id) const { return processor_->IsUnknown(id); }

bool SentencePieceLibrary::is_control(int32_t id) const { return processor_->IsControl(id); }

std::string SentencePieceLibrary::piece(int32_t id) const { return processor_->IdToPiece(id); }

std::string SentencePieceLibrary::decode(std::span<const int32_t> ids) const {
  std::string text;
  const auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  TESSERA_CHECK(status.ok(), "SentencePiece cannot decode: {}", status.message());
  return text;
}

std::unique_ptr<StretchEncoder> SentencePieceLibrary::stretch_encoder(
    const UnknownText& unknown) const {
  return std::make_unique<LibraryEncoder>(*processor_, unknown);
}

}  // namespace tessera
