#include "data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/sentencepiece_tokenizer.h"

namespace tessera {
namespace {

std::unique_ptr<Tokenizer> from_json(const fs::path& path) {
  const auto json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("kind", nlohmann::json()) != "bytes") {
    throw Error(
        "{} is no tokenizer of ours: expected {{\"kind\": \"bytes\"}}; give the word 'bytes' or a "
        "SentencePiece model (a Hugging Face tokenizer.json is not one)",
        path.string());
  }
  return std::make_unique<ByteTokenizer>();
}

}  // namespace

void Tokenizer::save(const fs::path& folder) const {
  write_file(folder / file_name(), serialized());
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  if (path == "bytes") return std::make_unique<ByteTokenizer>();
  if (fs::is_directory(path)) {
    for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
      if (fs::exists(path / name)) return load_tokenizer(path / name);
    }
    throw Error("the folder {} holds no tokenizer: expected tokenizer.model or tokenizer.json",
                path.string());
  }
  if (!fs::exists(path)) {
    throw Error(
        "there is no tokenizer at {}; give a SentencePiece model, a prepared folder or the word "
        "'bytes'",
        path.string());
  }
  if (path.extension() == ".json") return from_json(path);
  return std::make_unique<SentencePieceTokenizer>(read_file(path), path.string());
}

}  // namespace tessera
