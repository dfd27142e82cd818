#include "data/bpe/end_of_document.h"

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kTokenizerConfigDepth = 32;
constexpr std::array<const char*, 3> kWellKnownTokens{"<|endoftext|>", "<|end_of_text|>", "</s>"};
constexpr const char* kRemedy =
    "name the token that ends a document with --end-of-document, or as eos_token in a "
    "tokenizer_config.json beside it";

Json parse_object(const std::string& text, const std::string& origin) {
  Json json = parse_strict_json(text, origin, kTokenizerConfigDepth);
  if (!json.is_object()) throw Error("{}: found no object; expected one", origin);
  return json;
}

/// Returns a member of the object in a file, or null if there is none.
Json read_member(const fs::path& path, const char* key) {
  return parse_object(read_file(path), path.string()).value(key, Json());
}

/// Returns the text of a token, a string or an object with properties; "" if it is neither.
std::string content_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string()) {
    return token["content"].get<std::string>();
  }
  return "";
}

std::optional<std::string> content_with_id(const BpeDescription& description, const Json& id) {
  if (!id.is_number_unsigned()) return std::nullopt;
  const auto wanted = id.get<uint64_t>();
  for (const AddedToken& token : description.added_tokens) {
    if (static_cast<uint64_t>(token.id) == wanted) return token.content;
  }
  for (const auto& [content, found] : description.vocabulary) {
    if (static_cast<uint64_t>(found) == wanted) return content;
  }
  return std::nullopt;
}

/// Returns eos_token of a file, which must be a token, or "" if the file does not name one.
std::string read_eos_token(const fs::path& path, const BpeDescription& description) {
  const Json found = read_member(path, "eos_token");
  if (found.is_null()) return "";
  std::string content = content_of(found);
  if (content.empty() || !token_id(description, content)) {
    throw Error("{}: eos_token is {}, which is no token of the tokenizer beside it; {}",
                path.string(), printable(found.dump()), kRemedy);
  }
  return content;
}

/// Returns the token of eos_token_id of a file, or "" if the file has none. Of a list the first id
/// counts: a model with special tokens that end its turns lists the one that ends a document first.
std::string read_eos_id_token(const fs::path& path, const BpeDescription& description) {
  const Json found = read_member(path, "eos_token_id");
  if (found.is_null()) return "";
  const bool is_list = found.is_array() && !found.empty();
  const auto content = content_with_id(description, is_list ? found.front() : found);
  if (!content) {
    throw Error(
        "{}: eos_token_id is {}, expected the id of a token of the tokenizer beside it, or "
        "several; {}",
        path.string(), printable(found.dump()), kRemedy);
  }
  return *content;
}

}  // namespace

std::optional<int32_t> token_id(const BpeDescription& description, const std::string& content) {
  for (const AddedToken& token : description.added_tokens) {
    if (token.content == content) return token.id;
  }
  for (const auto& [spelled, id] : description.vocabulary) {
    if (spelled == content) return id;
  }
  return std::nullopt;
}

std::string find_end_of_document(const fs::path& folder, const BpeDescription& description,
                                 const std::string& origin) {
  using Reader = std::string (*)(const fs::path&, const BpeDescription&);
  const std::array<std::pair<const char*, Reader>, 4> sources{
      {{kTokenizerConfigName, read_eos_token},
       {"special_tokens_map.json", read_eos_token},
       {"generation_config.json", read_eos_id_token},
       {"config.json", read_eos_id_token}}};
  for (const auto& [name, read] : sources) {
    if (!path_exists(folder / name)) continue;
    std::string found = read(folder / name, description);
    if (!found.empty()) return found;
  }
  std::vector<std::string> known;
  for (const char* name : kWellKnownTokens) {
    if (token_id(description, name)) known.emplace_back(name);
  }
  if (known.size() == 1) return known.front();
  throw Error("{} {}; {}", origin,
              known.empty() ? "does not say which token ends a document"
                            : "has several tokens that may end a document: " + join(known, ", "),
              kRemedy);
}

std::string with_end_of_document(const std::string& config, const std::string& token,
                                 const std::string& origin) {
  // The generic class loads any tokenizer.json in transformers.
  nlohmann::ordered_json json{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!config.empty()) {
    const Json strict = parse_object(config, origin);
    if (strict.contains("eos_token") && content_of(strict["eos_token"]) == token) return config;
    json = nlohmann::ordered_json::parse(config);  // keeps the order of the keys
  }
  json["eos_token"] = token;
  return json.dump(2) + "\n";
}

}  // namespace tessera
