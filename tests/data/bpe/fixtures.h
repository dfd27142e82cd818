#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/tokenizer.h"

namespace tessera {

/// A file of tests/fixtures/tokenizers, which tests/reference/tokenizer_ids.py made and describes.
inline fs::path tokenizer_fixture(const std::string& name) {
  return fs::path(TESSERA_SOURCE) / "tests/fixtures/tokenizers" / name;
}

inline nlohmann::json fixture_json(const std::string& name) {
  return nlohmann::json::parse(read_file(tokenizer_fixture(name)));
}

inline std::vector<std::string> corpus_texts() {
  return fixture_json("corpus.json").at("texts").get<std::vector<std::string>>();
}

/// What the tokenizer's own library makes of each of corpus_texts().
struct ExpectedTokens {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> decoded;
};

inline ExpectedTokens expected_tokens(const std::string& tokenizer) {
  const nlohmann::json json = fixture_json(tokenizer + "/expected.json");
  ExpectedTokens expected;
  json.at("ids").get_to(expected.ids);
  json.at("decoded").get_to(expected.decoded);
  return expected;
}

/// The parsed tokenizer.json of a fixture, to be changed by a test.
inline nlohmann::json tokenizer_json(const std::string& tokenizer) {
  return fixture_json(tokenizer + "/tokenizer.json");
}

}  // namespace tessera
