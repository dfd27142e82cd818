#include "data/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/bpe/fixtures.h"
#include "data/byte_tokenizer.h"
#include "data/support.h"
#include "data/train_tokenizer.h"
#include "data/utf8_text.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> training_lines() {
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) {
    lines.push_back(
        fmt::format("  the {} quick brown foxes, don't jump; naïve café {}", i, i * 37));
    lines.push_back(random_text(static_cast<uint64_t>(i), 12));
  }
  return lines;
}

/// Training takes a moment, so the tests share one; it is immutable.
const Tokenizer& trained() {
  static const std::unique_ptr<Tokenizer> tokenizer = train_tokenizer(training_lines(), 400);
  return *tokenizer;
}

void check_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> tokens = tokenizer.encode(text);
  for (const int32_t token : tokens) {
    RC_ASSERT(token >= 0 && token < tokenizer.vocabulary_size());
    RC_ASSERT(token != tokenizer.end_of_document());
  }
  RC_ASSERT(tokenizer.decode(tokens) == text);
}

RC_GTEST_PROP(Tokenizer, BytesLoseNothing, ()) { check_round_trip(ByteTokenizer(), *any_text()); }

RC_GTEST_PROP(Tokenizer, TrainedModelLosesNothing, ()) { check_round_trip(trained(), *any_text()); }

RC_GTEST_PROP(Tokenizer, CuttingAtLineEndsChangesNothing, ()) {
  const std::string first = *any_text() + "\n";
  const std::string second = *any_text();
  std::vector<int32_t> joined = trained().encode(first);
  const std::vector<int32_t> rest = trained().encode(second);
  joined.insert(joined.end(), rest.begin(), rest.end());
  RC_ASSERT(trained().encode(first + second) == joined);
}

TEST(Tokenizer, KeepsWhitespaceEmojiAndControlWords) {
  for (const std::string text :
       {"", " ", "\n", "a  b   c", "\tindented\n\n    four\r\n", "👩‍👩‍👧 emoji 😀",
        "</s> <s> <unk> <0x41>", "▁ is a space mark ▁▁x▁", " leading and trailing ",
        "\xEF\xBB\xBFmark"}) {
    EXPECT_EQ(trained().decode(trained().encode(text)), text);
    const auto tokens = trained().encode(text);
    EXPECT_THAT(tokens, ::testing::Not(::testing::Contains(trained().end_of_document())));
  }
}

TEST(Tokenizer, TrainedModelCompresses) {
  EXPECT_EQ(trained().vocabulary_size(), 400);
  EXPECT_EQ(trained().kind(), "sentencepiece");
  const std::string text = "the quick brown foxes";
  EXPECT_LT(trained().encode(text).size(), text.size() / 2);
  EXPECT_EQ(trained().encode("a\nb").size(), 3U);
}

TEST(Tokenizer, TrainingTwiceGivesTheSameModel) {
  EXPECT_EQ(train_tokenizer(training_lines(), 400)->fingerprint(), trained().fingerprint());
}

TEST(Tokenizer, BytesHaveOneTokenMore) {
  const ByteTokenizer bytes;
  EXPECT_EQ(bytes.vocabulary_size(), 257);
  EXPECT_EQ(bytes.end_of_document(), 256);
  EXPECT_EQ(bytes.encode("a\xFF"), (std::vector<int32_t>{97, 255}));
  EXPECT_EQ(bytes.decode(std::vector<int32_t>{104, 105, 256}), "hi");
}

TEST(Tokenizer, DecodeRefusesIdsOutsideTheVocabulary) {
  for (const int32_t token : {-1, 400, 100000}) {
    const std::vector<int32_t> tokens = {token};
    EXPECT_THAT(error_of([&] { trained().decode(tokens); }), HasSubstr("vocabulary of 400"));
  }
  EXPECT_THAT(error_of([&] { ByteTokenizer().decode(std::vector<int32_t>{257}); }),
              HasSubstr("vocabulary of 257"));
}

TEST(Tokenizer, SavesAndLoads) {
  const TemporaryFolder folder;
  save_tokenizer(trained(), folder.path());
  const auto loaded = load_tokenizer(folder.path());
  EXPECT_EQ(loaded->fingerprint(), trained().fingerprint());
  EXPECT_EQ(loaded->encode("the fox"), trained().encode("the fox"));
  EXPECT_EQ(load_tokenizer(folder / "tokenizer.model")->fingerprint(), trained().fingerprint());

  const TemporaryFolder other;
  save_tokenizer(ByteTokenizer(), other.path());
  EXPECT_EQ(load_tokenizer(other.path())->kind(), "bytes");
  EXPECT_EQ(load_tokenizer("bytes")->fingerprint(), load_tokenizer(other.path())->fingerprint());
  EXPECT_NE(load_tokenizer("bytes")->fingerprint(), trained().fingerprint());
}

TEST(Tokenizer, RefusesWhatIsNone) {
  const TemporaryFolder folder;
  const fs::path garbage = folder.write("garbage.model", "not a model");
  const fs::path hugging_face = folder.write("tokenizer/tokenizer.json", "{\"model\": {}}");
  EXPECT_THAT(error_of([&] { load_tokenizer(garbage); }),
              HasSubstr("garbage.model is not a SentencePiece model"));
  EXPECT_THAT(error_of([&] { load_tokenizer(hugging_face); }), HasSubstr("model.vocab is null"));
  EXPECT_THAT(error_of([&] { load_tokenizer(folder.path()); }), HasSubstr("holds no tokenizer"));
  EXPECT_THAT(error_of([&] { load_tokenizer(folder / "absent"); }), HasSubstr("no tokenizer at"));
}

TEST(Tokenizer, GivesTheIdsOfTheSentencePiecePackage) {
  const auto tokenizer = load_tokenizer(tokenizer_fixture("sentencepiece"));
  const std::vector<std::string> texts = corpus_texts();
  const ExpectedTokens expected = expected_tokens("sentencepiece");
  ASSERT_EQ(texts.size(), expected.ids.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->encode(texts[i]), expected.ids[i]) << texts[i];
    EXPECT_EQ(tokenizer->decode(expected.ids[i]), expected.decoded[i]);
  }
}

TEST(Tokenizer, OfTwoFilesTheOneThatIsNotAConversionIsTaken) {
  const TemporaryFolder folder;
  const std::string model = read_file(tokenizer_fixture("sentencepiece/tokenizer.model"));
  folder.write("tokenizer.model", model);
  folder.write("tokenizer.json",
               R"({"model": {"type": "BPE"}, "pre_tokenizer": {"type": "Metaspace"}})");
  EXPECT_EQ(load_tokenizer(folder.path())->kind(), "sentencepiece");
  folder.write("tokenizer.json", read_file(tokenizer_fixture("gpt2/tokenizer.json")));
  EXPECT_EQ(load_tokenizer(folder.path())->kind(), "byte-level BPE");
  folder.write("tokenizer.json", ByteTokenizer().files().front().content);
  EXPECT_THAT(error_of([&] { load_tokenizer(folder.path()); }), HasSubstr("holds two tokenizers"));
  folder.write("tokenizer.json", "{");
  EXPECT_THAT(error_of([&] { load_tokenizer(folder.path()); }), HasSubstr("not valid JSON"));
}

TEST(Tokenizer, OnlyAHuggingFaceOneIsToldWhatEndsADocument) {
  EXPECT_THAT(error_of([] { load_tokenizer("bytes", "</s>"); }), HasSubstr("of its own"));
  EXPECT_THAT(error_of([] { load_tokenizer(tokenizer_fixture("sentencepiece"), "</s>"); }),
              HasSubstr("of its own"));
}

TEST(Tokenizer, TrainingSaysWhichSizesDoNotFit) {
  EXPECT_THAT(error_of([] { train_tokenizer(training_lines(), 200); }), HasSubstr("too small"));
  EXPECT_THAT(error_of([] { train_tokenizer({"just a few words"}, 5000); }),
              HasSubstr("5000 pieces"));
  EXPECT_THAT(error_of([] { train_tokenizer({}, 500); }), HasSubstr("0 lines"));
}

}  // namespace
}  // namespace tessera
