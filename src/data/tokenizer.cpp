#include "data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "data/bpe/byte_level_bpe_tokenizer.h"
#include "data/bpe/tokenizer_json.h"
#include "data/byte_tokenizer.h"
#include "data/sentencepiece_tokenizer.h"

namespace tessera {
namespace {

using Loaded = std::unique_ptr<Tokenizer>;

void refuse_end_of_document(const std::string& end_of_document, std::string_view tokenizer) {
  if (end_of_document.empty()) return;
  throw Error("{} has an end-of-document token of its own; leave '{}' out", tokenizer,
              end_of_document);
}

Loaded load_bytes(const std::string& end_of_document) {
  refuse_end_of_document(end_of_document, "the byte tokenizer");
  return std::make_unique<ByteTokenizer>();
}

Loaded load_sentencepiece(const fs::path& path, const std::string& end_of_document) {
  refuse_end_of_document(end_of_document, "the SentencePiece model " + path.string());
  return std::make_unique<SentencePieceTokenizer>(read_file(path), path.string());
}

/// A file of ours when `json` says so; otherwise null or one that the `tokenizers` library reads.
bool is_bytes(const nlohmann::json& json) {
  return json.is_object() && json.value("kind", nlohmann::json()) == "bytes";
}

Loaded load_json(const fs::path& path, std::string text, const nlohmann::json& json,
                 const std::string& end_of_document) {
  if (is_bytes(json)) return load_bytes(end_of_document);
  return load_byte_level_bpe(path, std::move(text), json, end_of_document);
}

Loaded load_folder(const fs::path& folder, const std::string& end_of_document) {
  const fs::path model = folder / "tokenizer.model";
  const fs::path json_path = folder / "tokenizer.json";
  if (!fs::exists(json_path)) {
    if (fs::exists(model)) return load_sentencepiece(model, end_of_document);
    throw Error("the folder {} holds no tokenizer: expected tokenizer.model or tokenizer.json",
                folder.string());
  }
  std::string text = read_file(json_path);
  const nlohmann::json json = parse_tokenizer_json(text, json_path.string());
  if (fs::exists(model)) {
    if (is_bytes(json)) {
      throw Error("{} holds two tokenizers, {} and {}; name one of them", folder.string(),
                  json_path.filename().string(), model.filename().string());
    }
    if (!is_byte_level(json)) return load_sentencepiece(model, end_of_document);
  }
  return load_json(json_path, std::move(text), json, end_of_document);
}

}  // namespace

std::vector<std::string> Tokenizer::file_names() const {
  std::vector<std::string> names;
  for (const TokenizerFile& file : files()) names.push_back(file.name);
  return names;
}

void Tokenizer::save(const fs::path& folder) const {
  for (const TokenizerFile& file : files()) write_file(folder / file.name, file.content);
}

std::vector<int32_t> beginning_of_document(const Tokenizer& tokenizer, const std::string& spelled) {
  if (spelled.empty()) return {};
  const std::optional<int32_t> token = tokenizer.control_token(spelled);
  if (!token || *token == tokenizer.end_of_document()) {
    throw Error(
        "{} cannot begin a document: {} of the tokenizer ({}); name another, such as "
        "<|begin_of_text|> or <s>, or leave --beginning-of-document out",
        in_quotes(spelled), token ? "it is the end-of-document token" : "it is no control token",
        tokenizer.kind());
  }
  return {*token};
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path,
                                          const std::string& end_of_document) {
  if (path == "bytes") return load_bytes(end_of_document);
  if (fs::is_directory(path)) return load_folder(path, end_of_document);
  if (!fs::exists(path)) {
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

}  // namespace tessera
