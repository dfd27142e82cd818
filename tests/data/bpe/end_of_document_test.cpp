#include "data/bpe/end_of_document.h"

#include <nlohmann/json.hpp>

#include "data/support.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class EndOfDocument : public ::testing::Test {
 protected:
  EndOfDocument() {
    description_.vocabulary = {{"a", 0}, {"</s>", 7}};
    description_.added_tokens = {{.id = 10, .content = "<eos>", .special = true},
                                 {.id = 11, .content = "<turn>", .special = true}};
  }

  std::string found() {
    return find_end_of_document(folder_.path(), description_, "tokenizer.json");
  }
  std::string error() {
    return error_of([&] { found(); });
  }

  TemporaryFolder folder_;
  BpeDescription description_;
};

TEST_F(EndOfDocument, TheTokenizersOwnFilesDecideFirst) {
  EXPECT_EQ(found(), "</s>");  // by its well-known name
  folder_.write("config.json", R"({"eos_token_id": 11})");
  EXPECT_EQ(found(), "<turn>");
  folder_.write("generation_config.json", R"({"eos_token_id": [10]})");
  EXPECT_EQ(found(), "<eos>");
  folder_.write("special_tokens_map.json", R"({"eos_token": {"content": "<turn>"}})");
  EXPECT_EQ(found(), "<turn>");
  folder_.write("tokenizer_config.json", R"({"eos_token": "<eos>"})");
  EXPECT_EQ(found(), "<eos>");
}

TEST_F(EndOfDocument, AFileThatDoesNotSayLeavesItToTheNext) {
  folder_.write("tokenizer_config.json", R"({"eos_token": null})");
  folder_.write("special_tokens_map.json", "{}");
  folder_.write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(found(), "</s>");
}

TEST_F(EndOfDocument, SeveralOrNoneIsAnError) {
  description_.vocabulary.emplace_back("<|endoftext|>", 8);
  EXPECT_THAT(error(), HasSubstr("several tokens that may end a document: <|endoftext|>, </s>"));
  description_.vocabulary.clear();
  EXPECT_THAT(error(), HasSubstr("does not say which token ends a document"));
  EXPECT_THAT(error(), HasSubstr("--end-of-document"));
}

TEST_F(EndOfDocument, OfAListTheFirstTokenEndsADocument) {
  folder_.write("config.json", R"({"eos_token_id": [11, 10]})");
  EXPECT_EQ(found(), "<turn>");
  folder_.write("generation_config.json", R"({"eos_token_id": [10, 11]})");
  EXPECT_EQ(found(), "<eos>");
  folder_.write("generation_config.json", R"({"eos_token_id": []})");
  EXPECT_THAT(error(), HasSubstr("eos_token_id is []"));
  folder_.write("generation_config.json", R"({"eos_token_id": [12, 10]})");
  EXPECT_THAT(error(), HasSubstr("eos_token_id is [12,10]"));
}

TEST_F(EndOfDocument, ATokenThatThereIsNotIsAnError) {
  folder_.write("config.json", R"({"eos_token_id": 12})");
  EXPECT_THAT(error(), HasSubstr("config.json: eos_token_id is 12"));
  folder_.write("config.json", R"({"eos_token_id": -1})");
  EXPECT_THAT(error(), HasSubstr("eos_token_id is -1"));
  folder_.write("special_tokens_map.json", R"({"eos_token": "<end>"})");
  EXPECT_THAT(error(), HasSubstr("eos_token is \"<end>\""));
  folder_.write("tokenizer_config.json", R"({"eos_token": 3})");
  EXPECT_THAT(error(), HasSubstr("tokenizer_config.json: eos_token is 3"));
  folder_.write("tokenizer_config.json", "[]");
  EXPECT_THAT(error(), HasSubstr("found no object"));
}

TEST_F(EndOfDocument, IsKeptInTheTokenizersConfiguration) {
  const std::string says_so = R"({ "eos_token": {"content": "<eos>", "lstrip": false}, "b": 1 })";
  EXPECT_EQ(with_end_of_document(says_so, "<eos>", "file"), says_so);
  const auto other = nlohmann::json::parse(with_end_of_document(says_so, "<turn>", "file"));
  EXPECT_EQ(other, (nlohmann::json{{"eos_token", "<turn>"}, {"b", 1}}));
  const auto fresh = nlohmann::json::parse(with_end_of_document("", "<eos>", "file"));
  EXPECT_EQ(fresh.at("eos_token"), "<eos>");
  EXPECT_THAT(error_of([] { with_end_of_document("[]", "<eos>", "file"); }),
              HasSubstr("file: found no object"));
}

}  // namespace
}  // namespace tessera
