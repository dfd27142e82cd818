#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/sentencepiece/stretch_encoder.h"
#include "data/sentencepiece/unknown_text.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace tessera {

/// The SentencePiece library with one model loaded. Every thread may call every method.
class SentencePieceLibrary {
 public:
  /// `model` is the content of a .model file, and `origin` names it in errors. Throws Error when
  /// the library does not accept it.
  SentencePieceLibrary(std::string_view model, const std::string& origin);
  ~SentencePieceLibrary();

  int64_t piece_count() const;
  /// Returns the piece that ends a sentence; negative if there is none.
  int32_t end_of_sentence() const;
  /// Returns the piece with this text, or the unknown piece.
  int32_t id(std::string_view piece) const;
  bool is_unknown(int32_t id) const;
  bool is_control(int32_t id) const;
  std::string piece(int32_t id) const;

  /// Returns the text of ids, which must be in [0, piece_count()).
  std::string decode(std::span<const int32_t> ids) const;
  /// Returns an encoder that makes one library call per stretch. The model must not normalise text
  /// (see model_of_normalized_text()). `unknown` is the model's UnknownText. This object and
  /// `unknown` must outlive the encoder.
  std::unique_ptr<StretchEncoder> stretch_encoder(const UnknownText& unknown) const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

}  // namespace tessera
