#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "data/bpe/bpe_description.h"
#include "data/bpe/bpe_model.h"
#include "data/bpe/bpe_stages.h"
#include "data/bpe/split_pattern.h"
#include "data/scratch_pool.h"
#include "data/tokenizer.h"

namespace tessera {

/// A byte-level byte-pair encoding, as the `tokenizers` library stores it in a tokenizer.json:
/// GPT-2, GPT-NeoX (OLMo, OLMoE), Llama 3, Qwen and others. It can also be a byte-pair encoding of
/// characters that falls back to bytes. The library converts SentencePiece's models to this form,
/// such as Gemma 3's, which ZAYA1 uses.
///
/// The ids are those that the library gives without adding special tokens and with
/// encode_special_tokens set. Control tokens ("special" in the file) and the end-of-document token
/// are never found in text; otherwise one document could forge the end of another. Other added
/// tokens, such as runs of spaces, are found. The ids differ from the library's only where a
/// pattern asks for properties of characters that Unicode assigned after the version that PCRE2
/// knows.
class ByteLevelBpeTokenizer : public Tokenizer {
 public:
  /// `end_of_document` is the content of a token. `files` are the files that files() returns, the
  /// tokenizer.json first. Throws Error naming `origin` when the description contradicts itself,
  /// when text could become the end-of-document token, and as BpeModel and SplitPattern do.
  ByteLevelBpeTokenizer(const BpeDescription& description, const std::string& end_of_document,
                        std::vector<TokenizerFile> files, const std::string& origin);

  /// Throws Error when `text` is not valid UTF-8.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::unique_ptr<DocumentEncoder> document_encoder() const override;
  /// Returns the bytes that the tokens stand for. They are not valid UTF-8 if a character is
  /// incomplete. An id without a token gives no text.
  std::string decode(std::span<const int32_t> tokens) const override;
  int64_t vocabulary_size() const override { return static_cast<int64_t>(texts_.size()); }
  int32_t end_of_document() const override { return end_of_document_; }
  std::optional<int32_t> control_token(std::string_view spelling) const override;
  std::string kind() const override { return kind_; }
  std::string fingerprint() const override { return fingerprint_; }
  std::vector<TokenizerFile> files() const override { return files_; }

 private:
  /// The memory of one call of encode().
  struct Scratch {
    SplitPattern::Scratch split;
    BpeModel::Scratch model;
    std::string normalized;
    std::string prefixed;
  };

  /// Fills texts_ and control_tokens_. Throws Error if two tokens share an id or a content.
  void read_texts(const BpeDescription& description, const std::string& origin);
  /// Encodes text without added tokens.
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& tokens) const;
  /// Splits a piece by the steps from `step` on, and encodes the pieces of the last one.
  void encode_split(std::string_view text, size_t step, Scratch& scratch,
                    std::vector<int32_t>& tokens) const;

  std::vector<TokenizerFile> files_;
  int32_t end_of_document_;
  std::string fingerprint_;
  std::string kind_;
  std::map<std::string, int32_t, std::less<>> control_tokens_;  // by content
  std::vector<std::string> texts_;  // [vocabulary_size], the text that decode() gives for each id
  BpeStages stages_;
  mutable ScratchPool<Scratch> scratch_;
};

/// Loads the byte-level tokenizer.json at `path`. `text` is its content and `json` is the parsed
/// content. `end_of_document` is the content of a token, or "" to look for it in the files beside
/// it (see find_end_of_document()).
std::unique_ptr<Tokenizer> load_byte_level_bpe(const fs::path& path, std::string text,
                                               const nlohmann::json& json,
                                               const std::string& end_of_document);

}  // namespace tessera
