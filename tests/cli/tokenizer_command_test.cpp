#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "data/tokenizer.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Result = testing::ProgramResult;

/// A Hugging Face tokenizer from the text to the text that a model writes.
class TokenizerCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path fixtures = fs::path(TESSERA_SOURCE) / "tests/fixtures/tokenizers";
    write_file(folder_ / "text.txt", testing::small_text(600));
    write_file(folder_ / "config.toml", testing::small_config(folder_.path()));
    testing::write_known_peak(folder_ / "hardware.json", testing::two_threads());
    write_file(folder_ / "neox.json", read_file(fixtures / "gpt_neox/tokenizer.json"));
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  Result prepare(std::vector<std::string> more) const {
    std::vector<std::string> arguments{"prepare",  "--input",    path("text.txt"),
                                       "--output", path("data"), "--context",
                                       "32",       "--held-out", "0.05"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizerCommandTest, PrepareTrainEvaluateGenerate) {
  const Result prepared =
      prepare({"--tokenizer", path("neox.json"), "--end-of-document", "<|padding|>"});
  ASSERT_EQ(prepared.status, 0) << prepared.output;
  EXPECT_THAT(prepared.output, HasSubstr("byte-level BPE (vocabulary 924)"));
  const Result trained = run({"train", path("config.toml"), "--quiet", "--set", "train.steps=2",
                              "--set", "optimizer.warmup_steps=1"});
  ASSERT_EQ(trained.status, 0) << trained.output;
  // The checkpoint needs the data no more, and knows what ends a document.
  const fs::path checkpoint = folder_ / "run/checkpoints/step-00000002";
  const auto carried = load_tokenizer(checkpoint);
  EXPECT_EQ(carried->end_of_document(), 1);
  EXPECT_EQ(carried->fingerprint(), load_tokenizer(folder_ / "data")->fingerprint());
  const Result evaluated = run({"eval", "--checkpoint", path("run"), "--json"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.output;
  fs::remove_all(folder_ / "data");
  const Result generated =
      run({"generate", "--checkpoint", path("run"), "--prompt", "naïve 😀", "--tokens", "8"});
  EXPECT_EQ(generated.status, 0) << generated.output;
  EXPECT_THAT(generated.output, HasSubstr("8 tokens"));

  // What stands before the prompt matters: <|endoftext|> is 0, and 1 ends documents here.
  const auto greedy = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "generate", "--checkpoint", path("run"), "--prompt", "the", "--temperature",
        "0",        "--json",       "--tokens",  "4"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Result begun = greedy({"--beginning-of-document", "<|endoftext|>"});
  EXPECT_EQ(begun.status, 0) << begun.output;
  const Result refused = greedy({"--beginning-of-document", "<|padding|>"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("it is the end-of-document token"));
  const std::string questions = path("questions.jsonl");
  write_file(questions, R"({"context": "the", "choices": ["old", "new"], "answer": 0})"
                        "\n");
  const auto scores = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"eval",    "--checkpoint",  path("run"),         "--tasks",
                                   questions, "--predictions", path("scores.jsonl")};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(run(words).status, 0);
    return read_file(folder_ / "scores.jsonl");
  };
  EXPECT_NE(scores({"--beginning-of-document", "<|endoftext|>"}), scores({}));
}

TEST_F(TokenizerCommandTest, WhatIsNotSupportedIsNamedAndNothingWritten) {
  auto json = nlohmann::json::parse(read_file(path("neox.json")));
  json["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  write_file(folder_ / "digits.json", json.dump());
  const Result result = prepare({"--tokenizer", path("digits.json")});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("pre_tokenizer.type is \"Digits\""));
  EXPECT_FALSE(fs::exists(folder_ / "data"));
}

TEST_F(TokenizerCommandTest, TheEndOfADocumentMustBeAToken) {
  const Result result = prepare({"--tokenizer", path("neox.json"), "--end-of-document", "</s>"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("no token '</s>'"));
  EXPECT_EQ(prepare({"--tokenizer", "bytes", "--end-of-document", "</s>"}).status, 1);
  EXPECT_NE(prepare({"--train-tokenizer", "300", "--end-of-document", "</s>"}).status, 0);
  EXPECT_FALSE(fs::exists(folder_ / "data"));
}

}  // namespace
}  // namespace tessera
