#include <functional>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/bpe/byte_level_bpe_tokenizer.h"
#include "data/bpe/fixtures.h"
#include "data/bpe/tokenizer_json.h"
#include "data/sentencepiece/models.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/support.h"

// What docs/data.md says of text that looks like a token, or that a tokenizer does not know.

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::Not;
using TokenIds = std::vector<int32_t>;

/// Without merges, so that each token is a byte or an added token.
std::unique_ptr<Tokenizer> byte_level(const std::vector<nlohmann::json>& added_tokens,
                                      const std::function<void(nlohmann::json&)>& change = {}) {
  nlohmann::json json = tokenizer_json("gpt2");
  json["model"]["merges"] = nlohmann::json::array();
  for (const nlohmann::json& token : added_tokens) json["added_tokens"].push_back(token);
  if (change) change(json);
  return std::make_unique<ByteLevelBpeTokenizer>(
      read_tokenizer_json(json, "a file"), "<|endoftext|>", std::vector<TokenizerFile>{}, "a file");
}

nlohmann::json added(int32_t id, const std::string& content, bool strips) {
  return {{"id", id},         {"content", content},  {"single_word", false}, {"lstrip", strips},
          {"rstrip", strips}, {"normalized", false}, {"special", false}};
}

/// Expected are the ids of `tokenizers` 0.23.3.
TEST(TextInTokens, AnAddedTokenOfBlanksIsFound) {
  const auto plain = byte_level({added(800, "  ", false), added(801, "\n\n", false)});
  const int32_t space = plain->encode(" ").at(0);
  EXPECT_EQ(plain->encode("    "), (TokenIds{800, 800}));
  EXPECT_EQ(plain->encode("   \n\n"), (TokenIds{800, space, 801}));
  const auto strips = byte_level({added(800, "  ", true)});
  const int32_t a = strips->encode("a").at(0);
  const int32_t b = strips->encode("b").at(0);
  EXPECT_EQ(strips->encode("a    b"), (TokenIds{a, 800, b}));
  EXPECT_EQ(strips->encode("  \n  "), (TokenIds{800}));
  EXPECT_EQ(strips->encode("a   b  "), (TokenIds{a, 800, b, 800}));
  const auto one = byte_level({added(800, " ", true)});
  EXPECT_EQ(one->encode("a \xE3\x80\x80 b"), (TokenIds{a, 800, b}));
}

/// PCRE2 takes a character that Unicode assigned after PCRE2's version for none of its kind, where
/// `tokenizers` 0.23.3 knows it: U+1E4F0, a digit since Unicode 15.
TEST(TextInTokens, ADigitOfALaterUnicodeIsNoDigitYet) {
  const SplitPattern digits(R"(\p{N})", "a pattern");
  const SplitPattern assigned(R"(\P{Cn})", "a pattern");
  SplitPattern::Scratch scratch;
  const std::string old = "\xE0\xA5\xA6";        // U+0966
  const std::string later = "\xF0\x9E\x93\xB0";  // U+1E4F0
  EXPECT_TRUE(digits.find(old, 0, scratch).has_value());
  EXPECT_EQ(digits.find(later, 0, scratch).has_value(),
            assigned.find(later, 0, scratch).has_value());
  // Its tokens may be others; it is not lost.
  const auto tokenizer = byte_level({});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("1" + later)), "1" + later);
}

TEST(TextInTokens, NoTextOfSentencePieceBecomesAControlPiece) {
  for (const std::string type : {"unigram", "bpe", "char", "word"}) {
    const SentencePieceTokenizer tokenizer(testing::train_model({{"model_type", type},
                                                                 {"vocab_size", "400"},
                                                                 {"control_symbols", "<cls>"},
                                                                 {"user_defined_symbols", "<x>"}}),
                                           "a model");
    const int32_t cls = tokenizer.control_token("<cls>").value();
    const TokenIds ids = tokenizer.encode("a</s> <s> <cls> <x>");
    EXPECT_THAT(ids, Not(Contains(tokenizer.end_of_document()))) << type;
    EXPECT_THAT(ids, Not(Contains(tokenizer.control_token("<s>").value()))) << type;
    EXPECT_THAT(ids, Not(Contains(cls))) << type;
    EXPECT_EQ(tokenizer.decode(TokenIds{cls, tokenizer.end_of_document()}), "") << type;
  }
}

TEST(TextInTokens, ASpaceMarkOfTheTextIsASpaceToMostModels) {
  const auto decoded = [](const testing::TrainerSettings& more, const std::string& text) {
    testing::TrainerSettings settings = {{"model_type", "bpe"},
                                         {"vocab_size", "600"},
                                         {"normalization_rule_name", "identity"},
                                         {"remove_extra_whitespaces", "false"}};
    settings.insert(more.begin(), more.end());
    const SentencePieceTokenizer tokenizer(testing::train_model(settings), "a model");
    return tokenizer.decode(tokenizer.encode(text));
  };
  const std::string text = "a\xE2\x96\x81x \xE2\x96\x81";
  EXPECT_EQ(decoded({}, text), "a x  ");
  EXPECT_EQ(decoded({{"byte_fallback", "true"}}, text), "a x  ");
  EXPECT_EQ(decoded({{"byte_fallback", "true"}, {"add_dummy_prefix", "false"}}, text), text);
}

}  // namespace
}  // namespace tessera
