#include "data/byte_tokenizer.h"

#include "base/error.h"
#include "base/hash.h"

namespace tessera {
namespace {

/// An encoder for which every offset is a boundary. It reports the end of each piece.
class ByteEncoder : public DocumentEncoder {
 public:
  void begin(bool) override { bytes_added_ = 0; }
  void add(std::string_view piece, std::vector<int32_t>& ids,
           std::vector<Boundary>& boundaries) override {
    for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
    bytes_added_ += static_cast<int64_t>(piece.size());
    boundaries.push_back({bytes_added_, bytes_added_});
  }
  void finish(std::vector<int32_t>&, std::vector<Boundary>& boundaries) override {
    boundaries.push_back({bytes_added_, bytes_added_});
  }

 private:
  int64_t bytes_added_ = 0;
};

}  // namespace

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::unique_ptr<DocumentEncoder> ByteTokenizer::document_encoder() const {
  return std::make_unique<ByteEncoder>();
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size()) {
      throw Error("token {} is outside the byte tokenizer's vocabulary of {}", token,
                  vocabulary_size());
    }
    if (token != end_of_document()) text.push_back(static_cast<char>(token));
  }
  return text;
}

std::string ByteTokenizer::fingerprint() const { return hash_text(hash(files().front().content)); }

std::vector<TokenizerFile> ByteTokenizer::files() const {
  return {{"tokenizer.json", "{\"kind\": \"bytes\"}\n"}};
}

}  // namespace tessera
