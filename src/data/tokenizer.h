#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/document_encoder.h"

namespace tessera {

/// One file of a tokenizer.
struct TokenizerFile {
  std::string name;
  std::string content;
};

/// What a file of a tokenizer must be.
struct TokenizerFileHash {
  std::string name;
  std::string hash;  // XXH3-64 of its content, hexadecimal

  bool operator==(const TokenizerFileHash&) const = default;
};

/// Text to token ids and back. Immutable after construction: every thread may call every method.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The token ids of `text`, which is valid UTF-8; all lie in [0, vocabulary_size()). No text
  /// produces end_of_document().
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// For documents that arrive in pieces; the ids are those of encode(). The tokenizer must outlive
  /// it.
  virtual std::unique_ptr<DocumentEncoder> document_encoder() const = 0;
  /// The text of `tokens`. The end-of-document token and other control tokens give no text.
  /// Throws Error on an id outside [0, vocabulary_size()).
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;

  virtual int64_t vocabulary_size() const = 0;
  /// The token that stands after each document.
  virtual int32_t end_of_document() const = 0;
  /// The control token that is spelled so; nothing when none is.
  virtual std::optional<int32_t> control_token(std::string_view spelled) const = 0;
  /// "bytes", "sentencepiece" or "byte-level BPE".
  virtual std::string kind() const = 0;
  /// What tells two tokenizers apart: sixteen hexadecimal digits, equal where every encoding is.
  virtual std::string fingerprint() const = 0;
  /// Why encode() takes several times as long as with other tokenizers of this kind; "" where it
  /// does not.
  virtual std::string why_slow() const { return ""; }
  /// The files of which, in one folder, load_tokenizer() makes this one again. The first,
  /// tokenizer.json or tokenizer.model, is the tokenizer itself.
  virtual std::vector<TokenizerFile> files() const = 0;
  /// Their names and hashes.
  std::vector<TokenizerFileHash> file_hashes() const;
};

/// Loads a tokenizer by what the user names: the word "bytes", a SentencePiece model, a
/// tokenizer.json of ours or of Hugging Face (byte-level BPE, see ByteLevelBpeTokenizer), or a
/// folder with one of these: a prepared folder, a checkpoint, a model's folder. Where a folder has
/// both tokenizer.json and tokenizer.model, tokenizer.json is taken when it is byte-level BPE,
/// otherwise tokenizer.model, of which such a tokenizer.json is a conversion. The tokenizer of a
/// prepared folder is compared with what the folder's manifest says of it.
///
/// `end_of_document` names the token that ends a document, where it is not "" and the tokenizer is
/// a Hugging Face one; the others know theirs, and it is an Error. Throws Error when there is no
/// tokenizer, when it is damaged, or has a feature that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path,
                                          const std::string& end_of_document = "");

/// The files that load_tokenizer() looks at in a folder, where they are there.
inline constexpr std::array<std::string_view, 6> kTokenizerFileNames = {
    "tokenizer.json",          "tokenizer.model",        "tokenizer_config.json",
    "special_tokens_map.json", "generation_config.json", "config.json"};

/// The files of a tokenizer in `folder`, their hashes compared. Throws Error naming the first that
/// is another; the message ends with `advice`.
std::vector<TokenizerFile> read_tokenizer_files(const fs::path& folder,
                                                std::span<const TokenizerFileHash> files,
                                                std::string_view advice);

/// What stands before each document: the control token `spelled`, such as Llama 3's
/// <|begin_of_text|>, or nothing where that is "". Throws Error when `tokenizer` has no such token,
/// and when it is the one that ends documents.
std::vector<int32_t> beginning_of_document(const Tokenizer& tokenizer, const std::string& spelled);

}  // namespace tessera
