#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/hugging_face_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Result = testing::ProgramResult;

/// An imported model of 900 tokens whose tokenizer has 924: the runs of blanks, from that of 24 on,
/// have no row in its embedding.
class VocabularyCommand : public ::testing::Test {
 protected:
  VocabularyCommand() {
    nlohmann::json config = testing::small_olmoe_config();
    config["vocab_size"] = 900;
    config["eos_token_id"] = 0;
    testing::HuggingFaceFolder source(folder_ / "source", config, DType::f32);
    source.write();
    fs::copy(fs::path(TESSERA_SOURCE) / "tests/fixtures/tokenizers/gpt_neox/tokenizer.json",
             folder_ / "source/tokenizer.json");
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  Result import() const {
    return run({"checkpoint", "import", path("source"), "--output", path("model"), "--quiet"});
  }
  void expect_refused(const Result& result) {
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("token 900 ('" + kBlanks + "')"),
                      HasSubstr("outside the model's vocabulary of 900 tokens (0 to 899)")));
  }

  const std::string kBlanks = std::string(24, ' ');
  TemporaryFolder folder_;
};

TEST_F(VocabularyCommand, TheImportWarns) {
  const Result result = import();
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("warning: the tokenizer in " + path("source") + " has 924 tokens"),
                    HasSubstr("its model 900 (vocab_size)")));
}

TEST_F(VocabularyCommand, TextWithATokenThatTheModelHasNotIsRefused) {
  ASSERT_EQ(import().status, 0);
  const auto generate = [&](const std::string& prompt) {
    return run({"generate", "--checkpoint", path("model"), "--prompt", prompt, "--tokens", "4",
                "--temperature", "0", "--json"});
  };
  EXPECT_EQ(generate("a b").status, 0);
  expect_refused(generate("a" + kBlanks + "b"));

  write_file(
      folder_ / "task.jsonl",
      nlohmann::json{{"context", "a"}, {"choices", {"b", kBlanks + "c"}}, {"answer", 0}}.dump());
  const Result tasks = run({"eval", "--checkpoint", path("model"), "--tasks", path("task.jsonl")});
  expect_refused(tasks);
  EXPECT_THAT(tasks.output, HasSubstr("task.jsonl:1: choice 1: "));

  std::string text;
  for (int i = 0; i < 200; ++i) text += "word" + kBlanks + "another\n";
  write_file(folder_ / "text.txt", text);
  ASSERT_EQ(run({"prepare", "--input", path("text.txt"), "--output", path("data"), "--tokenizer",
                 path("source"), "--context", "16", "--held-out", "0.5"})
                .status,
            0);
  const Result evaluated = run({"eval", "--checkpoint", path("model"), "--data", path("data")});
  EXPECT_EQ(evaluated.status, 1) << evaluated.output;
  EXPECT_THAT(evaluated.output,
              AllOf(HasSubstr("held_out-00000.npy: token "),
                    HasSubstr("is the id 900, but the model has a vocabulary of 900")));
}

TEST_F(VocabularyCommand, AnEndOfDocumentThatTheModelHasNotIsRefusedAtImport) {
  auto json = nlohmann::json::parse(read_file(folder_ / "source/tokenizer.json"));
  nlohmann::json end = json["added_tokens"][0];
  end["id"] = 924;
  end["content"] = "<end>";
  json["added_tokens"].push_back(end);
  write_file(folder_ / "source/tokenizer.json", json.dump());
  write_file(folder_ / "source/tokenizer_config.json", R"({"eos_token": "<end>"})");
  const Result result = import();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("ends documents with the token 924, but its model has 900"));
  EXPECT_FALSE(fs::exists(path("model")));
}

TEST_F(VocabularyCommand, ATokenizerThatIsNotReadIsSaid) {
  write_file(folder_ / "source/tokenizer.json", R"({"model": {"type": "WordPiece"}})");
  const Result result = import();
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("note: text needs a tokenizer that Tessera reads: "));
}

TEST_F(VocabularyCommand, SeveralEndTokensAreTakenAndGivenBack) {
  nlohmann::json config = nlohmann::json::parse(read_file(folder_ / "source/config.json"));
  config["eos_token_id"] = {0, 5, 899};
  write_file(folder_ / "source/config.json", config.dump());
  ASSERT_EQ(import().status, 0);
  EXPECT_EQ(
      run({"generate", "--checkpoint", path("model"), "--prompt", "a", "--tokens", "4"}).status, 0);
  ASSERT_EQ(
      run({"checkpoint", "export", path("model"), "--output", path("back"), "--quiet"}).status, 0);
  for (const char* file : {"back/config.json", "back/generation_config.json"}) {
    EXPECT_EQ(nlohmann::json::parse(read_file(path(file)))["eos_token_id"],
              nlohmann::json({0, 5, 899}));
  }
  write_file(folder_ / "source/generation_config.json", R"({"eos_token_id": "</s>"})");
  fs::remove_all(path("model"));
  const Result result = import();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("generation_config.json: 'eos_token_id' is \"</s>\""));
}

TEST_F(VocabularyCommand, UnknownKeysAreAcceptedByName) {
  nlohmann::json config = nlohmann::json::parse(read_file(folder_ / "source/config.json"));
  config["of_others"] = 1;
  config["of_more"] = 2;
  config["pad_token_id"] = 3;
  write_file(folder_ / "source/config.json", config.dump());
  const Result refused = import();
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("'of_others' = 1"), HasSubstr("'of_more' = 2")));
  const Result accepted = run({"checkpoint", "import", "--accept-key", "of_others", "--accept-key",
                               "of_more", path("source"), "--output", path("model"), "--quiet"});
  EXPECT_EQ(accepted.status, 0) << accepted.output;
  EXPECT_THAT(accepted.output, AllOf(HasSubstr("note: " + path("source/config.json") +
                                               ": 'of_more' = 2 is not known"),
                                     HasSubstr("does not train the embedding of the token 3")));
  EXPECT_THAT(accepted.output, Not(HasSubstr("load-balance")));
}

}  // namespace
}  // namespace tessera
