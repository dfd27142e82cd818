#include <functional>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "data/bpe/byte_level_bpe_tokenizer.h"
#include "data/bpe/fixtures.h"
#include "data/bpe/open_piece.h"
#include "data/bpe/token_spelling.h"
#include "data/bpe/tokenizer_json.h"
#include "data/encode_in_pieces.h"
#include "data/support.h"
#include "data/utf8_text.h"

namespace tessera {
namespace {

using nlohmann::json;
using testing::encode_in_pieces;
using testing::EncodedPieces;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

const Tokenizer& gemma() {
  static const auto tokenizer = load_tokenizer(tokenizer_fixture("gemma"));
  return *tokenizer;
}

std::unique_ptr<Tokenizer> changed_gemma(const std::function<void(json&)>& change,
                                         const std::string& end = "<eos>") {
  json file = tokenizer_json("gemma");
  change(file);
  return std::make_unique<ByteLevelBpeTokenizer>(read_tokenizer_json(file, "gemma"), end,
                                                 std::vector<TokenizerFile>{}, "gemma");
}

void expect_refusal(const char* member, const json& value, const std::string& message) {
  const std::string error = error_of(
      [&] { changed_gemma([&](json& file) { file[json::json_pointer(member)] = value; }); });
  EXPECT_THAT(error, HasSubstr(message));
}

/// Marks, spelled bytes, added tokens and control tokens in text; the fixture has the library's
/// ids.
TEST(ByteFallback, GivesTheLibrarysIdsOfMarkedTexts) {
  const json marked = fixture_json("gemma/marked.json");
  const auto texts = marked.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 15U);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Ids ids = marked.at("ids").at(i).get<Ids>();
    EXPECT_EQ(gemma().encode(texts[i]), ids) << texts[i];
    EXPECT_EQ(gemma().decode(ids), marked.at("decoded").at(i).get<std::string>());
    const auto encoder = gemma().document_encoder();
    EXPECT_EQ(encode_in_pieces(*encoder, true, texts[i], [] { return 3; }).ids, ids) << texts[i];
  }
  EXPECT_EQ(gemma().kind(), "BPE with byte fallback");
  EXPECT_EQ(gemma().end_of_document(), 1);
  EXPECT_EQ(gemma().control_token("<bos>"), 2);
}

/// All but the mark itself, which is a space when it is decoded.
RC_GTEST_PROP(ByteFallback, LosesNothing, ()) {
  const std::string text = *any_text();
  RC_PRE(text.find("\u2581") == std::string::npos);
  const Ids ids = gemma().encode(text);
  for (const int32_t id : ids) RC_ASSERT(id > 3);  // no control token
  RC_ASSERT(gemma().decode(ids) == text);
}

TEST(ByteFallback, SpellsBytes) {
  EXPECT_EQ(fallback_token(0x0A), "<0x0A>");
  EXPECT_EQ(fallback_byte("<0xFF>"), 0xFF);
  for (const char* other : {"<0x0a>", "<0xG1>", "<0x1>", "<0x111>", "[0x11]", "<0x+1>", ""}) {
    EXPECT_FALSE(fallback_byte(other)) << other;
  }
  EXPECT_EQ(gemma().decode(gemma().encode("世")), "世");
  EXPECT_EQ(gemma().encode("世").size(), 3U);
  EXPECT_EQ(gemma().decode(Ids{gemma().encode("世").front()}), "\xE4");
}

/// Nothing is split, so a text is one piece, longer than what an encoder holds at once.
RC_GTEST_PROP(ByteFallback, LongTextsInPieces, (uint64_t seed)) {
  const std::vector<std::string> parts{"the ", "e",    " ",        "世",      "é",
                                       "\n",   "    ", "🤷🏿", "new york"};
  const CounterRandom random(seed, "parts");
  const uint64_t kinds = *rc::gen::inRange<uint64_t>(1, parts.size() + 1);
  std::string text;
  for (uint64_t i = 0; text.size() < 3 * OpenPiece::kWindow; ++i) {
    text += parts[random.bits(i) % kinds];
  }
  const auto encoder = gemma().document_encoder();
  const EncodedPieces read = encode_in_pieces(*encoder, true, text, [] { return 1000; });
  RC_ASSERT(read.ids == gemma().encode(text));
  RC_ASSERT(read.boundaries.size() > 1);
  const auto [offset, tokens] = read.boundaries[read.boundaries.size() / 2];
  const EncodedPieces rest =
      encode_in_pieces(*encoder, false, std::string_view(text).substr(offset), [] { return 777; });
  RC_ASSERT(rest.ids == Ids(read.ids.begin() + tokens, read.ids.end()));
}

TEST(ByteFallback, RefusesOtherStepsByName) {
  const std::string advice = "give the tokenizer.model that the file was made from";
  const json nfc{{"type", "NFC"}};
  const json prepend{{"type", "Prepend"}, {"prepend", "▁"}};
  expect_refusal("/normalizer", nullptr, "normalizer is null");
  expect_refusal("/normalizer", nullptr, advice);
  expect_refusal("/normalizer", nfc, "expected a Replace of \" \" by \"▁\" alone");
  expect_refusal(
      "/normalizer",
      {{"type", "Sequence"}, {"normalizers", {prepend, tokenizer_json("gemma").at("normalizer")}}},
      "Prepend");
  expect_refusal("/normalizer/content", "_", "normalizer is");
  expect_refusal("/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer is");
  expect_refusal("/pre_tokenizer/behavior", "Isolated", "expected none, or a Split at \" \"");
  expect_refusal("/pre_tokenizer/invert", true, "pre_tokenizer is");
  expect_refusal("/decoder", nullptr, "decoder is null");
  expect_refusal("/decoder/decoders/1", {{"type", "Metaspace"}}, "ByteFallback and Fuse");
  expect_refusal("/decoder/decoders/3", {{"type", "Strip"}}, advice);
  expect_refusal("/decoder/decoders", "none", "decoder is");
  expect_refusal("/model/ignore_merges", true, "model.ignore_merges is true; expected false");
  // Without fallback the same steps are no byte-level encoding.
  expect_refusal("/model/byte_fallback", false, "normalizer.type is \"Replace\"");
}

TEST(ByteFallback, ReadsNoPreTokenizerAsTheOneThatSplitsNothing) {
  const auto none = changed_gemma([](json& file) { file["pre_tokenizer"] = nullptr; });
  EXPECT_EQ(none->fingerprint(), gemma().fingerprint());
}

/// The fixture has no <0x09>.
TEST(ByteFallback, ACharacterThatIsATokenNeedsNoByte) {
  EXPECT_EQ(gemma().decode(gemma().encode("\t")), "\t");
  EXPECT_EQ(gemma().encode("\t").size(), 1U);
}

TEST(ByteFallback, RefusesVocabulariesThatLoseText) {
  EXPECT_THAT(
      error_of([] { changed_gemma([](json& file) { file["model"]["vocab"].erase("\t"); }); }),
      HasSubstr("no token '<0x09>' for the byte 0x09"));
  EXPECT_THAT(
      error_of([] { changed_gemma([](json& file) { file["model"]["vocab"].erase("<0xE4>"); }); }),
      HasSubstr("no token '<0xE4>' for the byte 0xE4"));
  EXPECT_THAT(error_of([] {
                changed_gemma([](json& file) {
                  file["model"]["merges"].push_back({"<0x0A>", "a"});
                  file["model"]["vocab"]["<0x0A>a"] = 2000;
                });
              }),
              HasSubstr("has '<0x0A>', the token of a byte"));
  EXPECT_THAT(error_of([] { changed_gemma([](json&) {}, "a"); }),
              HasSubstr("text can become the token 'a'"));
  EXPECT_THAT(error_of([] { changed_gemma([](json&) {}, "<0x0A>"); }),
              HasSubstr("text can become"));
}

/// A tokenizer.model beside it is what such a file was made from.
TEST(ByteFallback, IsReadFromAFolderWithoutAModel) {
  const TemporaryFolder folder;
  save_tokenizer(gemma(), folder.path());
  EXPECT_EQ(load_tokenizer(folder.path())->fingerprint(), gemma().fingerprint());
  fs::copy_file(tokenizer_fixture("sentencepiece") / "tokenizer.model", folder / "tokenizer.model");
  EXPECT_EQ(load_tokenizer(folder.path())->kind(), "sentencepiece");
}

}  // namespace
}  // namespace tessera
