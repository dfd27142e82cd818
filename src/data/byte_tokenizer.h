#pragma once

#include "data/tokenizer.h"

namespace tessera {

/// A tokenizer in which each byte is a token, 0 to 255. Token 256 ends a document.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  std::unique_ptr<DocumentEncoder> document_encoder() const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  int64_t vocabulary_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  std::optional<int32_t> control_token(std::string_view) const override { return std::nullopt; }
  std::string kind() const override { return "bytes"; }
  std::string fingerprint() const override;
  std::vector<TokenizerFile> files() const override;
};

}  // namespace tessera
