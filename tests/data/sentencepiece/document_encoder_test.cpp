#include "data/sentencepiece/document_encoder.h"

#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/utf8.h"
#include "data/bpe/fixtures.h"
#include "data/sentencepiece/models.h"
#include "data/sentencepiece/trained_models.h"

namespace tessera {
namespace {

using testing::any_description;
using testing::bare_description;
using testing::both;
using testing::BothEncoders;
using ::testing::HasSubstr;
using testing::mixed_lines;
using testing::mixed_text;
using testing::model_file;
using testing::model_names;
using testing::name_of_test;
using testing::text_of_few_characters;

class SentencePieceModels : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceModels, GiveTheIdsOfTheLibrary) {
  BothEncoders& encoders = both(GetParam());
  for (const std::string& line : mixed_lines()) {
    ASSERT_EQ(encoders.ours(line), encoders.library(line)) << line;
  }
  for (const std::string& text : corpus_texts()) {
    ASSERT_EQ(encoders.ours(text), encoders.library(text)) << text;
  }
  rc::check([&] {
    const std::string text = *mixed_text();
    RC_ASSERT(encoders.ours(text) == encoders.library(text));
  });
}

/// Sums of scores (unigram) grow with the text, and rounding decides between nearly equal ways.
TEST_P(SentencePieceModels, GiveTheIdsOfTheLibraryInLongTexts) {
  std::string text;
  for (uint64_t i = 0; i < 40; ++i) {
    for (const std::string& line : mixed_lines()) text += line.substr(i % line.size()) + " ";
    text += random_text(1000 + i, 300);
    if (text.size() > 300000) break;
  }
  BothEncoders& encoders = both(GetParam());
  if (encoders.model().description().algorithm == SentencePieceAlgorithm::unigram) {
    text.resize(next_character(text, 15000));
  }
  EXPECT_TRUE(encoders.ours(text) == encoders.library(text));
}

TEST_P(SentencePieceModels, GiveTheIdsOfTheLibraryForWordsWithoutEnd) {
  for (const std::string part : {"a", "ab", "fox", "東京", "é", "  ", "\xE2\x96\x81", "\n", "😀"}) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += part;
    EXPECT_TRUE(both(GetParam()).ours(text) == both(GetParam()).library(text)) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceModels, ::testing::ValuesIn(model_names()),
                         name_of_test);

void check_any_model(SentencePieceAlgorithm algorithm) {
  BothEncoders encoders(model_file(any_description(algorithm)));
  for (int i = 0; i < 5; ++i) {
    const std::string text = text_of_few_characters();
    RC_ASSERT(encoders.ours(text) == encoders.library(text));
    RC_ASSERT(encoders.ours(text) == encoders.library(text));  // words that have been met
  }
}

RC_GTEST_PROP(SentencePieceDocumentEncoder, AnyUnigramGivesTheIdsOfTheLibrary, ()) {
  check_any_model(SentencePieceAlgorithm::unigram);
}

RC_GTEST_PROP(SentencePieceDocumentEncoder, AnyBpeGivesTheIdsOfTheLibrary, ()) {
  check_any_model(SentencePieceAlgorithm::bpe);
}

/// Looking at every byte of the piece for each of its cuts would take minutes.
TEST(SentencePieceDocumentEncoder, LoadsPiecesOfAMegabyte) {
  SentencePieceDescription description = bare_description(false);
  description.algorithm = SentencePieceAlgorithm::bpe;
  description.adds_dummy_space = false;
  const auto add = [&](const std::string& text) {
    description.pieces.push_back({text, -static_cast<float>(text.size()), PieceType::normal});
    return static_cast<int32_t>(description.pieces.size() - 1);
  };
  std::map<size_t, int32_t> ids;  // by length
  constexpr size_t kLongest = size_t{1} << 20;
  for (size_t size = 1; size <= kLongest; size *= 2) ids[size] = add(std::string(size, 'a'));
  const int32_t pair = add("bc");
  add(std::string(kLongest, 'b'));  // nothing becomes this
  const SentencePieceModel model(model_file(description), "a model");
  EXPECT_EQ(model.why_slow(), "");
  const std::vector<int32_t> no_mark;
  SentencePieceDocumentEncoder encoder(model, no_mark);
  const auto encoded = [&](const std::string& text) {
    std::vector<int32_t> tokens;
    std::vector<DocumentEncoder::Boundary> boundaries;
    encoder.begin(true);
    encoder.add(text, tokens, boundaries);
    encoder.finish(tokens, boundaries);
    return tokens;
  };
  EXPECT_EQ(encoded(std::string(kLongest, 'a')), (std::vector{ids[kLongest]}));
  EXPECT_EQ(encoded(std::string(kLongest + 5, 'a') + "bc"),
            (std::vector{ids[kLongest], ids[4], ids[1], pair}));
}

TEST(SentencePieceModel, RefusesBrokenReplacements) {
  SentencePieceDescription description = bare_description(false);
  description.pieces.push_back({"a", -1, PieceType::normal});
  // One node that leads to nothing, and a replacement that no rule gives.
  description.character_map.assign(4 + 256 * sizeof(uint32_t), '\0');
  description.character_map[1] = 4;  // 1024 bytes of nodes
  description.character_map += "\xC3\xA9";
  EXPECT_NO_THROW(SentencePieceModel(model_file(description), "a model"));
  description.character_map.pop_back();
  EXPECT_THAT(error_of([&] { SentencePieceModel(model_file(description), "x.model"); }),
              HasSubstr("x.model is damaged: its precompiled_charsmap makes text of broken UTF-8"));
}

TEST(SentencePieceModel, RefusesScoresThatAreNotFinite) {
  for (const float score :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    SentencePieceDescription description = bare_description(false);
    description.pieces.push_back({"b", score, PieceType::normal});
    EXPECT_THAT(error_of([&] { SentencePieceModel(model_file(description), "x.model"); }),
                HasSubstr("x.model is damaged: the score of its piece 3 is"));
  }
}

/// The library has no token for such text.
TEST(SentencePieceModel, SaysThatTextSpellsAControlPiece) {
  SentencePieceDescription description = bare_description(false);
  description.algorithm = SentencePieceAlgorithm::bpe;
  description.pieces.push_back({"i", 0, PieceType::control});
  BothEncoders encoders(model_file(description));
  EXPECT_EQ(encoders.ours("abc").size(), 1U);
  EXPECT_THAT(error_of([&] { encoders.ours("abci"); }), HasSubstr("control piece"));
}

TEST(SentencePieceModel, LeavesToTheLibraryWhatOnlyItEncodes) {
  const auto why_slow = [](const SentencePieceDescription& description) {
    return SentencePieceModel(model_file(description), "a model").why_slow();
  };
  SentencePieceDescription plain = bare_description(false);
  plain.pieces.push_back({"a", -1, PieceType::normal});
  plain.algorithm = SentencePieceAlgorithm::bpe;
  EXPECT_EQ(why_slow(plain), "");
  auto changed = plain;
  changed.pieces.push_back({"b", 3, PieceType::normal});
  EXPECT_EQ(why_slow(changed), "") << "score above 0";
  changed.pieces.back() = {"\xC3", -1, PieceType::normal};
  EXPECT_EQ(why_slow(changed), "a piece is broken UTF-8");
  changed.pieces.back() = {"b", -1, PieceType::unused};
  EXPECT_THAT(why_slow(changed), HasSubstr("pieces out of use"));
  changed.pieces.back() = {"c", -1, PieceType::control};
  EXPECT_THAT(why_slow(changed), HasSubstr("control pieces that text can spell"));
  for (const auto algorithm : {SentencePieceAlgorithm::unigram, SentencePieceAlgorithm::word,
                               SentencePieceAlgorithm::character}) {
    changed.algorithm = algorithm;  // the library's usual speed
    EXPECT_EQ(why_slow(changed), "");
  }
}

}  // namespace
}  // namespace tessera
