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

/// The name and the hash that a tokenizer's file must have.
struct TokenizerFileHash {
  std::string name;
  std::string hash;  // XXH3-64 of its content, hexadecimal
  bool operator==(const TokenizerFileHash&) const = default;
};

/// A converter of text to token ids and back. Immutable: every thread may call every method.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the token ids of `text`, which is valid UTF-8. All ids are in [0, vocabulary_size()).
  /// No text produces end_of_document().
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// Returns an encoder for documents that arrive in pieces. Its ids are those of encode(). The
  /// tokenizer must outlive it.
  virtual std::unique_ptr<DocumentEncoder> document_encoder() const = 0;
  /// Returns the text of `tokens`. The end-of-document token and other control tokens give no text.
  /// Throws Error on an id outside [0, vocabulary_size()).
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;

  virtual int64_t vocabulary_size() const = 0;
  /// Returns the token that follows each document.
  virtual int32_t end_of_document() const = 0;
  /// Returns the control token with this spelling, or nothing if there is none.
  virtual std::optional<int32_t> control_token(std::string_view spelling) const = 0;
  /// Returns "bytes", "sentencepiece", "byte-level BPE" or "BPE with byte fallback".
  virtual std::string kind() const = 0;
  /// Returns sixteen hexadecimal digits that identify the tokenizer. Two tokenizers with equal
  /// digits encode every text alike.
  virtual std::string fingerprint() const = 0;
  /// Returns why encode() is several times slower than other tokenizers of this kind, or "".
  virtual std::string why_slow() const { return ""; }
  /// Returns the files that load_tokenizer() needs, in one folder, to make this tokenizer again.
  /// The first, tokenizer.json or tokenizer.model, is the tokenizer itself.
  virtual std::vector<TokenizerFile> files() const = 0;
  /// Returns the names and hashes of files().
  std::vector<TokenizerFileHash> file_hashes() const;
};

/// Loads the tokenizer that `path` names: the word "bytes", a SentencePiece model, a tokenizer.json
/// of Hugging Face (see ByteLevelBpeTokenizer) or of ours (it says {"kind": "bytes"}), or a folder
/// that holds one of these. The folder may be a prepared folder, a checkpoint or a model's folder.
/// If it has both tokenizer.json and tokenizer.model, a byte-level BPE tokenizer.json is loaded;
/// any other tokenizer.json of Hugging Face is a conversion of tokenizer.model, so tokenizer.model
/// is loaded. A tokenizer.json of ours beside a tokenizer.model is an Error. The tokenizer of a
/// prepared folder is compared with the folder's manifest.
///
/// `end_of_document` names the token that ends a document; "" leaves it to the tokenizer. Only a
/// Hugging Face tokenizer takes a name; for the others, which know their token, a name is an Error.
/// With a name, only the hashes of a prepared folder's tokenizer files are compared. Throws Error
/// when there is no tokenizer, when it is damaged, and when it has a feature that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path,
                                          const std::string& end_of_document = "");

/// The names of the files that load_tokenizer() looks for in a folder.
inline constexpr std::array<std::string_view, 6> kTokenizerFileNames = {
    "tokenizer.json",          "tokenizer.model",        "tokenizer_config.json",
    "special_tokens_map.json", "generation_config.json", "config.json"};

/// Reads the files of a tokenizer in `folder` and compares their hashes. Throws Error naming the
/// first file that differs. The message ends with `advice`.
std::vector<TokenizerFile> read_tokenizer_files(const fs::path& folder,
                                                std::span<const TokenizerFileHash> files,
                                                std::string_view advice);

/// Returns the tokens to put before each document: the control token `spelling`, such as Llama 3's
/// <|begin_of_text|>, or none if `spelling` is "". Throws Error when `tokenizer` has no such token,
/// and when that token is the one that ends documents.
std::vector<int32_t> beginning_of_document(const Tokenizer& tokenizer, const std::string& spelling);

/// Throws Error when one of `tokens` is not in [smallest_id, vocabulary_size), the ids that a model
/// takes. The error names the first such token and, if `tokenizer` is given, its text. A tokenizer
/// may have more tokens than its model, and the kernels do not check the ids they are given.
/// `smallest_id` is -1 for targets, where -1 means no target.
void require_in_vocabulary(std::span<const int32_t> tokens, int64_t vocabulary_size,
                           const Tokenizer* tokenizer = nullptr, int32_t smallest_id = 0);

}  // namespace tessera
