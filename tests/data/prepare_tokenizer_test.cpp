#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/bpe/fixtures.h"
#include "data/corpus/documents.h"
#include "data/prepare.h"
#include "data/prepared_rows.h"
#include "data/sentencepiece/trained_models.h"
#include "data/support.h"
#include "data/tokenizer.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
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

TEST(PrepareTokenizer, SaysWhyATokenizerIsSlow) {
  const TemporaryFolder folder;
  const auto log_of = [&](const std::string& name, const std::string& model) {
    PrepareOptions options = byte_options(write_corpus(folder), folder / name);
    options.tokenizer = folder.write(name + ".model", model).string();
    ::testing::internal::CaptureStderr();
    prepare(options, Logger());
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string bpe = testing::train_model({{"model_type", "bpe"}, {"vocab_size", "300"}});
  EXPECT_THAT(
      log_of("of the library", testing::with_pieces_out_of_use(bpe)),
      HasSubstr("several times as long as with other tokenizers: it has pieces out of use"));
  EXPECT_THAT(log_of("bpe", bpe), Not(HasSubstr("several times")));
  EXPECT_THAT(
      log_of("unigram", testing::train_model({{"model_type", "unigram"}, {"vocab_size", "300"}})),
      Not(HasSubstr("several times")));
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
  ASSERT_EQ(manifest.tokenizer_files.size(), 2U);
  EXPECT_EQ(manifest.tokenizer_files[0],
            (TokenizerFileHash{"tokenizer.json", hash_text(hash(json))}));
  EXPECT_EQ(manifest.tokenizer_files[1].name, "tokenizer_config.json");
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

/// The library's template of this tokenizer puts the same token there.
TEST(PrepareTokenizer, PutsWhatBeginsADocumentBeforeEachOne) {
  const TemporaryFolder folder;
  folder.write("in/a.txt", random_text(5, 120000));  // in many pieces and work items
  folder.write("in/b.txt", "");
  std::string lines;
  for (uint64_t i = 0; i < 30; ++i) {
    lines += nlohmann::json{{"text", random_text(100 + i, 20)}}.dump() + "\n";
  }
  folder.write("in/c.jsonl", lines);
  PrepareOptions options = byte_options(folder / "in", folder / "out");
  options.tokenizer = tokenizer_fixture("llama3").string();
  options.held_out = 0;
  options.shard_tokens = 1 << 22;
  options.item_bytes = int64_t{100} << 10;
  const Manifest plain = prepare(options, Logger()).manifest;
  options.output = folder / "begun";
  options.beginning_of_document = "<|begin_of_text|>";
  const Manifest begun = prepare(options, Logger()).manifest;

  const auto tokenizer = load_tokenizer(options.output);
  const int32_t beginning = tokenizer->control_token("<|begin_of_text|>").value();
  const auto count = [&](const fs::path& output, const Manifest& manifest, int32_t token) {
    int64_t found = 0;
    for (const Row& row : read_rows(output, manifest.train)) {
      found += std::ranges::count(row, token);
    }
    return found;
  };
  EXPECT_EQ(count(folder / "out", plain, beginning), 0);
  // The end of the last document is dropped with an instance that is not full.
  EXPECT_EQ(count(options.output, begun, beginning), 31);
  EXPECT_GE(count(options.output, begun, tokenizer->end_of_document()), 30);
  int64_t after_an_end = 0;
  for (const Row& row : read_rows(options.output, begun.train)) {
    for (size_t i = 1; i < row.size(); ++i) {
      if (row[i] != beginning) continue;
      EXPECT_EQ(row[i - 1], tokenizer->end_of_document());
      ++after_an_end;
    }
  }
  EXPECT_GT(after_an_end, 15);

  EXPECT_TRUE(prepare(options, Logger()).was_complete);
  options.beginning_of_document = "";
  EXPECT_THAT(error_of([&] { prepare(options, Logger()); }), HasSubstr("beginning_of_document"));
}

TEST(PrepareTokenizer, WhatCannotBeginADocumentIsRefused) {
  const TemporaryFolder folder;
  PrepareOptions options = byte_options(write_corpus(folder), folder / "out");
  const auto error_with = [&](const std::string& tokenizer, const std::string& beginning) {
    options.tokenizer = tokenizer;
    options.beginning_of_document = beginning;
    return error_of([&] { prepare(options, Logger()); });
  };
  const std::string llama3 = tokenizer_fixture("llama3").string();
  EXPECT_THAT(error_with("bytes", "<s>"), HasSubstr("'<s>' cannot begin a document"));
  EXPECT_THAT(error_with(llama3, "<|begin|>"), HasSubstr("it is no control token"));
  EXPECT_THAT(error_with(llama3, "the"), HasSubstr("it is no control token"));
  EXPECT_THAT(error_with(llama3, "<|end_of_text|>"), HasSubstr("the end-of-document token"));
  const std::string sentencepiece = tokenizer_fixture("sentencepiece").string();
  EXPECT_THAT(error_with(sentencepiece, "no piece"), HasSubstr("it is no control token"));
  EXPECT_THAT(error_with(sentencepiece, "</s>"), HasSubstr("the end-of-document token"));
  EXPECT_EQ(load_tokenizer(sentencepiece)->control_token("<s>"), 1);
  options.train_tokenizer = 320;
  EXPECT_THAT(error_with("", "<s>"), HasSubstr("leave '<s>' out"));
  EXPECT_FALSE(fs::exists(options.output));
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
