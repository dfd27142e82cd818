#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tessera {

/// Text to token ids and back. Immutable after construction: every thread may call every method.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The token ids of `text`, which is valid UTF-8; all lie in [0, vocabulary_size()). No text
  /// produces end_of_document().
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The text of `tokens`. The end-of-document token and other control tokens give no text.
  /// Throws Error on an id outside [0, vocabulary_size()).
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;

  virtual int64_t vocabulary_size() const = 0;
  /// The token that stands after each document.
  virtual int32_t end_of_document() const = 0;
  /// "bytes" or "sentencepiece".
  virtual std::string kind() const = 0;
  /// What tells two tokenizers apart: sixteen hexadecimal digits, equal where every encoding is.
  virtual std::string fingerprint() const = 0;
  /// The name of the file that save() writes: "tokenizer.json" or "tokenizer.model".
  virtual std::string file_name() const = 0;
  /// The bytes of that file.
  virtual std::string serialized() const = 0;

  /// Writes `folder`/file_name() atomically, so that load_tokenizer(folder) gives this one again.
  void save(const fs::path& folder) const;
};

/// Loads a tokenizer by what the user names: the word "bytes", a SentencePiece model, a
/// tokenizer.json that save() wrote, or a folder with one of the two (what `prepare` wrote).
/// Throws Error when there is none.
std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path);

}  // namespace tessera
