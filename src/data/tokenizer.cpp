#include "data/tokenizer.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "data/bpe/byte_level_bpe_tokenizer.h"
#include "data/bpe/tokenizer_json.h"
#include "data/byte_tokenizer.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/shards/manifest.h"

namespace tessera {
namespace {

void refuse_end_of_document(const std::string& end_of_document, std::string_view tokenizer) {
  if (end_of_document.empty()) return;
  throw Error("{} has an end-of-document token of its own; leave '{}' out", tokenizer,
              end_of_document);
}

std::unique_ptr<Tokenizer> load_byte_tokenizer(const std::string& end_of_document) {
  refuse_end_of_document(end_of_document, "the byte tokenizer");
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> load_sentencepiece(const fs::path& path,
                                              const std::string& end_of_document) {
  refuse_end_of_document(end_of_document, "the SentencePiece model " + path.string());
  return std::make_unique<SentencePieceTokenizer>(read_file(path), path.string());
}

/// Returns whether `json` is a tokenizer file of ours, not one of the `tokenizers` library.
bool is_byte_tokenizer(const nlohmann::json& json) {
  return json.is_object() && json.value("kind", nlohmann::json()) == "bytes";
}

std::unique_ptr<Tokenizer> load_json(const fs::path& path, std::string text,
                                     const nlohmann::json& json,
                                     const std::string& end_of_document) {
  if (is_byte_tokenizer(json)) return load_byte_tokenizer(end_of_document);
  return load_byte_level_bpe(path, std::move(text), json, end_of_document);
}

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder, const std::string& end_of_document) {
  const fs::path model = folder / "tokenizer.model";
  const fs::path json_path = folder / "tokenizer.json";
  if (!path_exists(json_path)) {
    if (path_exists(model)) return load_sentencepiece(model, end_of_document);
    throw Error("the folder {} holds no tokenizer: expected tokenizer.model or tokenizer.json",
                folder.string());
  }
  std::string text = read_file(json_path);
  const nlohmann::json json = parse_tokenizer_json(text, json_path.string());
  if (path_exists(model)) {
    if (is_byte_tokenizer(json)) {
      throw Error("{} holds two tokenizers, {} and {}; name one of them", folder.string(),
                  json_path.filename().string(), model.filename().string());
    }
    if (!is_byte_level(json)) return load_sentencepiece(model, end_of_document);
  }
  return load_json(json_path, std::move(text), json, end_of_document);
}

/// Loads the tokenizer that a prepared folder's data was made with.
std::unique_ptr<Tokenizer> load_prepared(const fs::path& folder,
                                         const std::string& end_of_document) {
  const Manifest manifest = read_manifest(folder);
  if (manifest.version > 1) {
    read_tokenizer_files(folder, manifest.tokenizer_files, kPrepareAgain);
  }
  std::unique_ptr<Tokenizer> tokenizer = load_folder(folder, end_of_document);
  const bool same = tokenizer->fingerprint() == manifest.tokenizer_fingerprint &&
                    tokenizer->vocabulary_size() == manifest.vocabulary_size &&
                    tokenizer->end_of_document() == manifest.end_of_document;
  // A caller who names an end-of-document token may want a different tokenizer.
  if (same || !end_of_document.empty()) return tokenizer;
  throw Error(
      "the tokenizer of {} is not the one that its {} describes: its fingerprint is {} instead of "
      "{}, its vocabulary {} instead of {}, its end-of-document token {} instead of {}; one of "
      "them is damaged: {}",
      folder.string(), kManifestName, tokenizer->fingerprint(), manifest.tokenizer_fingerprint,
      tokenizer->vocabulary_size(), manifest.vocabulary_size, tokenizer->end_of_document(),
      manifest.end_of_document, kPrepareAgain);
}

std::string spelling_of(const Tokenizer* tokenizer, int32_t token) {
  if (tokenizer == nullptr || token < 0 || token >= tokenizer->vocabulary_size()) return "";
  const std::string text = tokenizer->decode({{token}});
  return text.empty() ? " (a control token)" : fmt::format(" ({})", in_quotes(text));
}

}  // namespace

std::vector<TokenizerFileHash> Tokenizer::file_hashes() const {
  std::vector<TokenizerFileHash> hashes;
  for (const TokenizerFile& file : files()) {
    hashes.push_back({file.name, hash_text(hash(file.content))});
  }
  return hashes;
}

std::vector<TokenizerFile> read_tokenizer_files(const fs::path& folder,
                                                std::span<const TokenizerFileHash> files,
                                                std::string_view advice) {
  std::vector<TokenizerFile> result;
  for (const TokenizerFileHash& file : files) {
    const fs::path path = folder / file.name;
    result.push_back({file.name, read_file(path)});
    const std::string found = hash_text(hash(result.back().content));
    if (found == file.hash) continue;
    throw Error("{} is damaged: its hash is {}, expected {}; {}", path.string(), found, file.hash,
                advice);
  }
  return result;
}

std::vector<int32_t> beginning_of_document(const Tokenizer& tokenizer,
                                           const std::string& spelling) {
  if (spelling.empty()) return {};
  const std::optional<int32_t> token = tokenizer.control_token(spelling);
  if (!token || *token == tokenizer.end_of_document()) {
    throw Error(
        "{} cannot begin a document: {} of the tokenizer ({}); name another, such as "
        "<|begin_of_text|> or <s>, or leave --beginning-of-document out",
        in_quotes(spelling), token ? "it is the end-of-document token" : "it is no control token",
        tokenizer.kind());
  }
  return {*token};
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path,
                                          const std::string& end_of_document) {
  if (path == "bytes") return load_byte_tokenizer(end_of_document);
  if (is_folder(path)) {
    return is_prepared_folder(path) ? load_prepared(path, end_of_document)
                                    : load_folder(path, end_of_document);
  }
  if (!path_exists(path)) {
    throw Error(
        "there is no tokenizer at {}; give a SentencePiece model, a tokenizer.json, a folder with "
        "one of them or the word 'bytes'",
        path.string());
  }
  if (path.extension() != ".json") return load_sentencepiece(path, end_of_document);
  std::string text = read_file(path);
  const nlohmann::json json = parse_tokenizer_json(text, path.string());
  return load_json(path, std::move(text), json, end_of_document);
}

void require_in_vocabulary(std::span<const int32_t> tokens, int64_t vocabulary_size,
                           const Tokenizer* tokenizer, int32_t smallest_id) {
  const auto outside = std::ranges::find_if(
      tokens, [&](int32_t token) { return token < smallest_id || token >= vocabulary_size; });
  if (outside == tokens.end()) return;
  throw Error(
      "token {}{} is outside the model's vocabulary of {} tokens (0 to {}); the model cannot read "
      "it: take it out of the text, or tokenize with the model's own tokens alone",
      *outside, spelling_of(tokenizer, *outside), vocabulary_size, vocabulary_size - 1);
}

}  // namespace tessera
