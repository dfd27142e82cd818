#include "data/sentencepiece/encoder.h"

#include <map>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/bpe/fixtures.h"
#include "data/sentencepiece/models.h"
#include "data/utf8_text.h"

namespace tessera {
namespace {

using testing::bare_description;
using testing::BothEncoders;
using testing::mixed_lines;
using testing::model_file;
using testing::train_model;
using testing::TrainerSettings;

const TrainerSettings kPlain = {{"normalization_rule_name", "identity"},
                                {"add_dummy_prefix", "false"},
                                {"remove_extra_whitespaces", "false"}};

TrainerSettings with(TrainerSettings settings, const TrainerSettings& more) {
  settings.insert(more.begin(), more.end());
  return settings;
}

/// What SentencePiece models in use look like, and rarer settings.
const std::map<std::string, TrainerSettings>& settings_by_name() {
  static const std::map<std::string, TrainerSettings> all = {
      {"unigram", {{"model_type", "unigram"}, {"vocab_size", "500"}}},
      {"unigram with bytes", with(kPlain, {{"model_type", "unigram"},
                                           {"vocab_size", "700"},
                                           {"byte_fallback", "true"},
                                           {"character_coverage", "0.98"},
                                           {"user_defined_symbols", "<x>,東京,the q"},
                                           {"control_symbols", "<cls>,i"}})},
      {"unigram with spaces after words",
       {{"model_type", "unigram"},
        {"vocab_size", "500"},
        {"treat_whitespace_as_suffix", "true"},
        {"normalization_rule_name", "nfkc_cf"}}},
      {"unigram over spaces",
       {{"model_type", "unigram"},
        {"vocab_size", "600"},
        {"split_by_whitespace", "false"},
        {"character_coverage", "0.98"},
        {"normalization_rule_name", "nmt_nfkc_cf"}}},
      {"bpe with bytes", with(kPlain, {{"model_type", "bpe"},
                                       {"vocab_size", "700"},
                                       {"byte_fallback", "true"},
                                       {"split_digits", "true"},
                                       {"allow_whitespace_only_pieces", "true"}})},
      {"bpe with symbols",
       {{"model_type", "bpe"},
        {"vocab_size", "600"},
        {"remove_extra_whitespaces", "false"},
        {"user_defined_symbols",
         "<x>,\xE2\x96\x81\xE2\x96\x81,\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81,caf,fe"},
        {"normalization_rule_name", "nfkc"}}},
      {"bpe over spaces",
       {{"model_type", "bpe"},
        {"vocab_size", "500"},
        {"character_coverage", "0.98"},
        {"split_by_whitespace", "false"},
        {"split_by_unicode_script", "false"}}},
  };
  return all;
}

BothEncoders& both(const std::string& name) {
  static std::map<std::string, BothEncoders> all;
  const auto found = all.find(name);
  if (found != all.end()) return found->second;
  return all.try_emplace(name, train_model(settings_by_name().at(name))).first->second;
}

/// Words that the models have met, in parts, beside text of any kind, broken UTF-8 included.
rc::Gen<std::string> mixed_text() {
  static const std::vector<std::string> lines = mixed_lines();
  const auto part =
      rc::gen::map(rc::gen::tuple(rc::gen::inRange<size_t>(0, lines.size()),
                                  rc::gen::inRange<size_t>(0, 60), rc::gen::inRange<size_t>(0, 20)),
                   [](const std::tuple<size_t, size_t, size_t>& drawn) {
                     const std::string& line = lines[std::get<0>(drawn)];
                     return line.substr(std::get<1>(drawn) % line.size(), std::get<2>(drawn));
                   });
  const auto spaces = rc::gen::element<std::string>(" ", "  ", "   ", "\xE2\x96\x81", "\t", "<x>",
                                                    "<s>", "\xE3\x80\x80", "\xCC\x81");
  const auto parts =
      rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(part, spaces, any_text()));
  return rc::gen::map(parts, [](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) text += one;
    return text;
  });
}

class SentencePieceModels : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceModels, GiveTheIdsOfTheLibrary) {
  BothEncoders& encoders = both(GetParam());
  ASSERT_TRUE(encoders.has_ours());
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

/// As sums grow, rounding decides between nearly equal ways to cut a word (unigram).
TEST_P(SentencePieceModels, GiveTheIdsOfTheLibraryInLongTexts) {
  std::string text;
  for (uint64_t i = 0; i < 40; ++i) {
    for (const std::string& line : mixed_lines()) text += line.substr(i % line.size()) + " ";
    text += random_text(1000 + i, 300);
    if (text.size() > 300000) break;
  }
  EXPECT_TRUE(both(GetParam()).ours(text) == both(GetParam()).library(text));
}

TEST_P(SentencePieceModels, GiveTheIdsOfTheLibraryForWordsWithoutEnd) {
  for (const std::string part : {"a", "ab", "fox", "東京", "é", "  ", "\xE2\x96\x81", "\n", "😀"}) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += part;
    EXPECT_TRUE(both(GetParam()).ours(text) == both(GetParam()).library(text)) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceModels, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& [name, settings] : settings_by_name())
                             names.push_back(name);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

/// Pieces of a few characters, often with equal scores, so that ties decide.
SentencePieceDescription any_description(SentencePieceAlgorithm algorithm) {
  SentencePieceDescription description = bare_description(*rc::gen::arbitrary<bool>());
  description.algorithm = algorithm;
  description.adds_dummy_space = *rc::gen::arbitrary<bool>();
  description.removes_extra_whitespace = *rc::gen::arbitrary<bool>();
  description.escapes_whitespace = *rc::gen::arbitrary<bool>();
  description.whitespace_as_suffix = *rc::gen::arbitrary<bool>();
  const auto character = rc::gen::element<std::string>("a", "b", "c", "é", "\xE2\x96\x81", " ");
  const auto pieces = *rc::gen::container<std::set<std::string>>(
      rc::gen::map(rc::gen::resize(5, rc::gen::container<std::vector<std::string>>(character)),
                   [](const std::vector<std::string>& all) {
                     std::string text = "a";
                     if (!all.empty()) text.clear();
                     for (const std::string& one : all) text += one;
                     return text;
                   }));
  const bool bpe = algorithm == SentencePieceAlgorithm::bpe;
  for (const std::string& text : pieces) {
    const float score = *rc::gen::element<float>(-1, -1, -2, -2.1F, -3, -3.7F, -5);
    const auto type = *rc::gen::element(PieceType::normal, PieceType::normal, PieceType::normal,
                                        PieceType::normal, PieceType::user_defined,
                                        bpe ? PieceType::normal : PieceType::unused);
    description.pieces.push_back({text, score, type});
  }
  description.pieces.push_back({"zz", -4, PieceType::normal});
  return description;
}

std::string text_of_few_characters() {
  const auto character = rc::gen::element<std::string>("a", "b", "c", "é", "\xE2\x96\x81", " ", "d",
                                                       "ü", "z", "\xC3", "😀");
  std::string text;
  for (const std::string& one :
       *rc::gen::resize(300, rc::gen::container<std::vector<std::string>>(character))) {
    text += one;
  }
  return text;
}

void check_any_model(SentencePieceAlgorithm algorithm) {
  const SentencePieceDescription description = any_description(algorithm);
  BothEncoders encoders(model_file(description));
  RC_ASSERT(encoders.has_ours());
  for (int i = 0; i < 5; ++i) {
    const std::string text = text_of_few_characters();
    RC_ASSERT(encoders.ours(text) == encoders.library(text));
    RC_ASSERT(encoders.ours(text) == encoders.library(text));  // words that have been met
  }
}

RC_GTEST_PROP(SentencePieceEncoder, AnyUnigramGivesTheIdsOfTheLibrary, ()) {
  check_any_model(SentencePieceAlgorithm::unigram);
}

RC_GTEST_PROP(SentencePieceEncoder, AnyBpeGivesTheIdsOfTheLibrary, ()) {
  check_any_model(SentencePieceAlgorithm::bpe);
}

/// Looking at every byte of the piece for each of its cuts would take minutes.
TEST(SentencePieceEncoder, LoadsPiecesOfAMegabyte) {
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
  const auto encoder = SentencePieceEncoder::create(description, CharacterMap("", "a model"));
  ASSERT_NE(encoder, nullptr);
  SentencePieceEncoder::Scratch scratch;
  const auto encoded = [&](const std::string& text) { return encoder->encode(text, scratch); };
  EXPECT_EQ(encoded(std::string(kLongest, 'a')), (std::vector{ids[kLongest]}));
  EXPECT_EQ(encoded(std::string(kLongest + 5, 'a') + "bc"),
            (std::vector{ids[kLongest], ids[4], ids[1], pair}));
}

TEST(SentencePieceEncoder, LeavesBrokenReplacementsToTheLibrary) {
  SentencePieceDescription description = bare_description(false);
  description.pieces.push_back({"a", -1, PieceType::normal});
  // One node that leads to nothing, and a replacement that no rule gives.
  std::string map(4 + 256 * sizeof(uint32_t), '\0');
  map[1] = 4;  // 1024 bytes of nodes
  EXPECT_EQ(SentencePieceEncoder::why_not(description, CharacterMap(map + "\xC3\xA9", "a model")),
            "");
  const CharacterMap broken(map + "\xC3", "a model");
  EXPECT_EQ(SentencePieceEncoder::why_not(description, broken),
            "a replacement of characters is broken UTF-8");
  EXPECT_EQ(SentencePieceEncoder::create(description, broken), nullptr);
}

TEST(SentencePieceEncoder, LeavesToTheLibraryWhatOnlyItEncodes) {
  const auto is_taken = [](const SentencePieceDescription& description) {
    return BothEncoders(model_file(description)).has_ours();
  };
  SentencePieceDescription plain = bare_description(false);
  plain.pieces.push_back({"a", -1, PieceType::normal});
  for (const auto algorithm : {SentencePieceAlgorithm::unigram, SentencePieceAlgorithm::bpe}) {
    plain.algorithm = algorithm;
    EXPECT_TRUE(is_taken(plain));
    auto changed = plain;
    changed.pieces.push_back({"\xC3", -1, PieceType::normal});
    EXPECT_FALSE(is_taken(changed)) << "broken UTF-8";
    changed.pieces.back() = {"b", std::numeric_limits<float>::infinity(), PieceType::normal};
    EXPECT_FALSE(is_taken(changed)) << "infinite score";
    changed.pieces.back().score = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(is_taken(changed)) << "a score that is no number";
    changed.pieces.back() = {"b", 3, PieceType::normal};
    EXPECT_EQ(is_taken(changed), algorithm == SentencePieceAlgorithm::bpe) << "score above 0";
    changed.pieces.back() = {"b", -1, PieceType::unused};
    EXPECT_EQ(is_taken(changed), algorithm == SentencePieceAlgorithm::unigram) << "unused";
    changed.pieces.back() = {"c", -1, PieceType::control};
    EXPECT_EQ(is_taken(changed), algorithm == SentencePieceAlgorithm::unigram) << "control";
  }
  for (const auto algorithm : {SentencePieceAlgorithm::word, SentencePieceAlgorithm::character}) {
    plain.algorithm = algorithm;
    EXPECT_FALSE(is_taken(plain));
  }
}

}  // namespace
}  // namespace tessera
