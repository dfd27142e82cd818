#include "data/bpe/tokenizer_json.h"

#include <functional>

#include "data/bpe/byte_level_bpe_tokenizer.h"
#include "data/bpe/fixtures.h"
#include "data/support.h"

namespace tessera {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

BpeDescription description_of(const json& tokenizer) {
  return read_tokenizer_json(tokenizer, "tokenizer.json");
}

std::string refusal(const std::string& tokenizer, const std::function<void(json&)>& change) {
  json changed = tokenizer_json(tokenizer);
  change(changed);
  return error_of([&] { description_of(changed); });
}

/// Sets one value of gpt_neox's file and expects an error that names its path.
void expect_refused(const std::string& pointer, const json& value, const std::string& named) {
  const std::string error =
      refusal("gpt_neox", [&](json& file) { file[json::json_pointer(pointer)] = value; });
  EXPECT_THAT(error, HasSubstr("tokenizer.json: ")) << pointer;
  EXPECT_THAT(error, HasSubstr(named)) << pointer;
}

TEST(TokenizerJson, ReadsWhatDecidesTokens) {
  const BpeDescription neox = description_of(tokenizer_json("gpt_neox"));
  EXPECT_TRUE(neox.normalizes_nfc);
  EXPECT_FALSE(neox.ignores_merges);
  ASSERT_EQ(neox.splits.size(), 1U);
  EXPECT_EQ(neox.vocabulary.size(), 900U);
  EXPECT_EQ(neox.added_tokens.size(), 26U);
  EXPECT_EQ(neox.added_tokens.front(),
            (AddedToken{.id = 0, .content = "<|endoftext|>", .special = true}));
  EXPECT_EQ(neox.added_tokens[2],
            (AddedToken{.id = 900, .content = std::string(24, ' '), .normalized = true}));

  const BpeDescription llama = description_of(tokenizer_json("llama3"));
  EXPECT_FALSE(llama.normalizes_nfc);
  EXPECT_TRUE(llama.ignores_merges);
  EXPECT_TRUE(llama.splits.front().keeps_gaps);
  EXPECT_FALSE(description_of(tokenizer_json("dolma2")).splits.front().keeps_gaps);
  EXPECT_TRUE(description_of(tokenizer_json("added")).adds_prefix_space);
}

TEST(TokenizerJson, ReadsMergesOfBothForms) {
  json file = tokenizer_json("gpt2");
  const BpeDescription pairs = description_of(file);
  for (json& merge : file["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  EXPECT_EQ(description_of(file).merges, pairs.merges);
  EXPECT_GT(pairs.merges.size(), 500U);
}

TEST(TokenizerJson, AcceptsNeutralAndHarmlessMembers) {
  json file = tokenizer_json("gpt2");
  const BpeDescription plain = description_of(file);
  file["model"].erase("type");
  file["model"]["dropout"] = 0.0;
  file["model"]["unk_token"] = "<|endoftext|>";
  file["model"]["continuing_subword_prefix"] = "";
  file["model"]["end_of_word_suffix"] = "";
  file["model"]["fuse_unk"] = true;
  file["truncation"] = {{"max_length", 512}};
  file["padding"] = {{"strategy", "BatchLongest"}};
  EXPECT_EQ(description_of(file).vocabulary, plain.vocabulary);
}

TEST(TokenizerJson, RefusesOtherModels) {
  expect_refused("/model/type", "WordPiece", "model.type is \"WordPiece\"");
  expect_refused("/model/dropout", 0.1, "model.dropout is 0.1");
  expect_refused("/model/byte_fallback", true, "model.byte_fallback is true, and nothing else");
  expect_refused("/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix");
  expect_refused("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix");
  expect_refused("/model/ignore_merges", "yes", "model.ignore_merges");
  expect_refused("/model/novelty", 1, "'novelty'");
  expect_refused("/novelty", 1, "'novelty'");
}

TEST(TokenizerJson, RefusesOtherSteps) {
  const json split{{"type", "Split"},
                   {"pattern", {{"Regex", "a"}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  const auto sequence = [](const json& part) {
    return json{{"type", "Sequence"}, {"pretokenizers", json::array({part})}};
  };
  expect_refused("/normalizer", {{"type", "NFKC"}}, "normalizer.type is \"NFKC\"");
  expect_refused("/normalizer",
                 {{"type", "Sequence"}, {"normalizers", json::array({{{"type", "Lowercase"}}})}},
                 "normalizer.normalizers[0].type is \"Lowercase\"");
  expect_refused("/pre_tokenizer", nullptr, "pre_tokenizer is null");
  expect_refused("/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer.type is \"Metaspace\"");
  expect_refused("/pre_tokenizer", sequence({{"type", "Digits"}, {"individual_digits", true}}),
                 "pre_tokenizer.pretokenizers[0].type is \"Digits\"");
  expect_refused("/pre_tokenizer", sequence(split), "a ByteLevel at the end");
  json contiguous = split;
  contiguous["behavior"] = "Contiguous";
  expect_refused("/pre_tokenizer", sequence(contiguous), "behavior is \"Contiguous\"");
  json inverted = split;
  inverted["invert"] = true;
  expect_refused("/pre_tokenizer", sequence(inverted), "invert is true");
  json literal = split;
  literal["pattern"] = {{"String", "a"}};
  expect_refused("/pre_tokenizer", sequence(literal), "'String'");
  expect_refused("/post_processor", {{"type", "BertProcessing"}}, "post_processor.type");
  expect_refused("/decoder", {{"type", "Metaspace"}}, "decoder is");
  expect_refused("/decoder", nullptr, "decoder is null");
}

TEST(TokenizerJson, RefusesAPrefixSpaceAfterASplit) {
  EXPECT_THAT(refusal("llama3",
                      [](json& file) {
                        file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
                      }),
              HasSubstr("add_prefix_space is true; expected false after a Split"));
}

TEST(TokenizerJson, RefusesDamage) {
  expect_refused("/model/vocab/a", 1.5, "model.vocab.a is 1.5");
  expect_refused("/model/vocab/a", -1, "model.vocab.a is -1");
  expect_refused("/model/vocab/a", 99999999999, "model.vocab.a is 99999999999");
  expect_refused("/model/vocab/a", 5, "share it");
  expect_refused("/model/vocab", json::array(), "model.vocab");
  expect_refused("/model/merges/0", "abc", "model.merges[0] is \"abc\"");
  expect_refused("/model/merges/0", "a b c", "model.merges[0]");
  expect_refused("/model/merges/0", json::array({"a"}), "model.merges[0]");
  expect_refused("/added_tokens/0/content", "", "added_tokens[0].content");
  expect_refused("/added_tokens/0/special", 1, "added_tokens[0].special");
  expect_refused("/added_tokens/0/id", -1, "added_tokens[0].id is -1");
  expect_refused("/added_tokens/0", 7, "added_tokens[0] is 7");
  expect_refused("/model", nullptr, "model is null");
  EXPECT_THAT(error_of([] { description_of(json::array()); }), HasSubstr("expected an object"));
  EXPECT_THAT(error_of([] { parse_tokenizer_json("{\"a\": 1, \"a\": 2}", "file"); }),
              HasSubstr("twice"));
}

TEST(TokenizerJson, TellsByteLevelFromOthers) {
  for (const char* name : {"gpt_neox", "gpt2", "llama3", "added"}) {
    EXPECT_TRUE(is_byte_level(tokenizer_json(name))) << name;
  }
  json metaspace = tokenizer_json("gpt2");
  metaspace["pre_tokenizer"] = {{"type", "Metaspace"}};
  EXPECT_TRUE(is_byte_level(metaspace));  // by its decoder: refused rather than passed over
  metaspace["decoder"] = {{"type", "Sequence"}, {"decoders", json::array({{{"type", "Fuse"}}})}};
  EXPECT_FALSE(is_byte_level(metaspace));
  EXPECT_FALSE(is_byte_level(json{{"pre_tokenizer", nullptr}}));
  EXPECT_FALSE(is_byte_level(json::array()));
}

/// Vocabularies that contradict themselves are found when the tokenizer is made of them.
class Contradictions : public ::testing::Test {
 protected:
  static std::string refusal(const std::function<void(BpeDescription&)>& change,
                             const std::string& end = "<|endoftext|>") {
    BpeDescription description = description_of(tokenizer_json("gpt_neox"));
    change(description);
    return error_of([&] { ByteLevelBpeTokenizer(description, end, {}, "tokenizer.json"); });
  }
};

TEST_F(Contradictions, AreNamed) {
  EXPECT_THAT(
      refusal([](auto& d) { std::erase_if(d.vocabulary, [](auto& t) { return t.first == "q"; }); }),
      HasSubstr("no token 'q' for the byte 0x71"));
  EXPECT_THAT(refusal([](auto& d) {
                d.merges.front() = {"q", "~~"};
              }),
              HasSubstr("model.merges[0] needs the token 'q~~'"));
  EXPECT_THAT(refusal([](auto& d) { d.added_tokens[2].id = 40; }), HasSubstr("the id 40 belongs"));
  EXPECT_THAT(refusal([](auto& d) { d.added_tokens[3].id = d.added_tokens[2].id; }),
              HasSubstr("expected one token an id"));
  EXPECT_THAT(refusal([](auto& d) { d.added_tokens[2].content = std::string("a"); }),
              HasSubstr("the token 'a' has the ids"));
}

TEST_F(Contradictions, WhatEndsADocumentIsNoText) {
  const auto nothing = [](BpeDescription&) {};
  EXPECT_THAT(refusal(nothing, "a"), HasSubstr("text can become the token 'a'"));
  EXPECT_THAT(refusal(nothing, "Ġthe"), HasSubstr("text can become the token"));
  EXPECT_THAT(refusal(nothing, "<eos>"), HasSubstr("no token '<eos>' that could end a document"));
}

}  // namespace
}  // namespace tessera
