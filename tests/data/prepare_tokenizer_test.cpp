#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/bpe/fixtures.h"
#include "data/corpus/documents.h"
#include "data/prepare.h"
#include "data/prepared_rows.h"
#include "data/support.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::read_rows;
using testing::Row;
using testing::write_corpus;

TEST(PrepareTokenizer, TrainsATokenizerAndTakesAGivenOne) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  options.tokenizer = "";
  options.train_tokenizer = 320;
  options.tokenizer_sample_bytes = 1;  // a single block
  const Manifest trained = prepare(options, Logger()).manifest;
  EXPECT_EQ(trained.vocabulary_size, 320);
  const auto tokenizer = load_tokenizer(options.output);
  EXPECT_EQ(trained.tokenizer_fingerprint, tokenizer->fingerprint());
  EXPECT_TRUE(fs::exists(options.output / "tokenizer.model"));

  options.output = folder / "again";
  options.tokenizer = (folder / "out/tokenizer.model").string();
  options.train_tokenizer = 0;
  const Manifest given = prepare(options, Logger()).manifest;
  EXPECT_EQ(given.train.shards, trained.train.shards);
  EXPECT_EQ(read_file(folder / "again/tokenizer.model"), read_file(folder / "out/tokenizer.model"));

  std::string text;  // everything decodes to pieces of the corpus
  for (const Row& row : read_rows(options.output, given.held_out)) text = tokenizer->decode(row);
  std::erase(text, '\n');
  EXPECT_FALSE(text.empty());
}

/// The reference is encode() of whole documents, which tests of the tokenizer compare with others.
TEST(PrepareTokenizer, TakesAHuggingFaceTokenizerAndKeepsItsFiles) {
  const TemporaryFolder folder;
  const std::string json = read_file(tokenizer_fixture("gpt_neox/tokenizer.json"));
  folder.write("neox/tokenizer.json", json);
  std::string lines;
  for (const std::string& text : corpus_texts()) {
    lines += nlohmann::json{{"text", text}}.dump() + "\n";
  }
  PrepareOptions options = byte_options(folder.write("in.jsonl", lines), folder / "out");
  options.tokenizer = (folder / "neox").string();
  options.end_of_document = "<|padding|>";
  options.held_out = 0;
  options.shard_tokens = 1 << 20;
  const Manifest manifest = prepare(options, Logger()).manifest;
  EXPECT_EQ(manifest.tokenizer_kind, "byte-level BPE");
  EXPECT_EQ(manifest.end_of_document, 1);
  EXPECT_EQ(manifest.tokenizer_files,
            (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(read_manifest(options.output).tokenizer_files, manifest.tokenizer_files);
  EXPECT_EQ(read_file(options.output / "tokenizer.json"), json);

  const auto tokenizer = load_tokenizer(options.output);
  EXPECT_EQ(tokenizer->fingerprint(), manifest.tokenizer_fingerprint);
  EXPECT_EQ(tokenizer->end_of_document(), 1);
  Row expected;
  for (const std::string& text : corpus_texts()) {
    if (text.empty()) continue;
    const Row tokens = tokenizer->encode(text);
    expected.insert(expected.end(), tokens.begin(), tokens.end());
    expected.push_back(1);
  }
  Row found;
  for (const Row& row : read_rows(options.output, manifest.train)) {
    found.insert(found.end(), row.begin(), row.end());
  }
  expected.resize(expected.size() - expected.size() % 16);
  std::ranges::sort(expected);
  std::ranges::sort(found);
  EXPECT_EQ(found, expected);

  EXPECT_TRUE(prepare(options, Logger()).was_complete);
  options.end_of_document = "<|endoftext|>";
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("tokenizer_fingerprint"));
}

TEST(PrepareTokenizer, AnUnsupportedTokenizerLeavesNothingBehind) {
  const TemporaryFolder folder;
  nlohmann::json json = tokenizer_json("gpt2");
  json["model"]["dropout"] = 0.1;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  options.tokenizer = folder.write("tokenizer.json", json.dump()).string();
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("model.dropout is 0.1"));
  EXPECT_FALSE(fs::exists(options.output));
}

/// A tokenizer that puts a space before a text does so once a document, however long that is.
TEST(PrepareTokenizer, OnlyTheBeginningOfALongDocumentGetsASpace) {
  const TemporaryFolder folder;
  nlohmann::json json = tokenizer_json("gpt2");
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const std::string words = random_text(5, 120000);  // several times kLongestPiece
  ASSERT_GT(words.size(), 2 * kLongestPiece);
  folder.write("in/a.txt", words);
  folder.write("in/b.jsonl", nlohmann::json{{"text", words}}.dump() + "\n");
  PrepareOptions options = byte_options(folder / "in", folder / "out", 2);
  options.shard_tokens = 1 << 22;
  options.tokenizer = folder.write("tokenizer.json", json.dump()).string();
  options.held_out = 0;
  options.item_bytes = int64_t{300} << 10;
  const Manifest manifest = prepare(options, Logger()).manifest;
  const auto tokenizer = load_tokenizer(options.output);
  int64_t spaces = 0;
  for (const Row& row : read_rows(options.output, manifest.train)) {
    spaces += std::ranges::count(tokenizer->decode(row), ' ');
  }
  // At most the end of the last document is dropped with an instance that is not full.
  EXPECT_EQ(spaces, 2 * (1 + std::ranges::count(words, ' ')));
}

}  // namespace
}  // namespace tessera
