#include <functional>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "data/bpe/bpe_stages.h"
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

using testing::encode_in_pieces;
using testing::EncodedPieces;
using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> tokenizer_of(const BpeDescription& description, const std::string& end) {
  return std::make_unique<ByteLevelBpeTokenizer>(description, end, std::vector<TokenizerFile>{},
                                                 "test");
}

nlohmann::json added_token(int id, const std::string& content, const std::string& flags) {
  const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
  return {{"id", id},           {"content", content}, {"single_word", has('w')},
          {"lstrip", has('l')}, {"rstrip", has('r')}, {"normalized", has('n')},
          {"special", has('s')}};
}

/// GPT-2's pattern with added tokens of every kind, normalisation and a prefix space.
std::unique_ptr<Tokenizer> hostile_tokenizer(bool nfc, bool prefix) {
  nlohmann::json json = tokenizer_json("gpt2");
  json["normalizer"] = nfc ? nlohmann::json{{"type", "NFC"}} : nlohmann::json();
  json["pre_tokenizer"]["add_prefix_space"] = prefix;
  int id = 900;
  for (const auto& [content, flags] :
       std::vector<std::pair<std::string, std::string>>{{"  ", ""},
                                                        {"\n\n\n", "l"},
                                                        {"<a>", "lr"},
                                                        {"<ab", "w"},
                                                        {"<abc>", "n"},
                                                        {"ab", "wn"},
                                                        {"é", "nl"},
                                                        {"<b>", "rn"},
                                                        {"\t", "r"},
                                                        {"<s> b", "s"},
                                                        {"b<", "sn"},
                                                        {"c", "wlr"},
                                                        {"한", "wlrn"}}) {
    const auto& vocabulary = json["model"]["vocab"];
    const int known = vocabulary.value(content, id++);
    json["added_tokens"].push_back(added_token(known, content, flags));
  }
  return tokenizer_of(read_tokenizer_json(json, "test"), "<|endoftext|>");
}

/// What is hard to encode in pieces.
rc::Gen<std::string> hostile_text() {
  const auto word = rc::gen::element<std::string>(
      "a", "b", "c", "ab", "abc", "é", "e\u0301", "\u0301", "\u0316", "\u1100", "\u1161", "\u11A8",
      "한", "中", "😀", " ", "  ", "   ", "\n", "\r\n", "\n\n\n", "\t", "\u3000", "1", "12", "'",
      "'re", "'l", "<a>", "<ab", "<abc>", "<abc", "<b>", "<s> b", "<s>", "b<", ".", "!!", "the",
      " the", " 中", "=", "\u0958", "\u1E9B\u0323", "z");
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(word),
                      [](const std::vector<std::string>& words) {
                        std::string text;
                        for (const std::string& one : words) text += one;
                        return text;
                      });
}

/// The boundaries from the one at `index` on, as offsets in the document.
std::set<size_t> offsets_from(const EncodedPieces& encoded, size_t index, size_t begin) {
  std::set<size_t> offsets;
  for (size_t i = index; i < encoded.boundaries.size(); ++i) {
    offsets.insert(static_cast<size_t>(encoded.boundaries[i].offset) + begin);
  }
  return offsets;
}

/// Streaming gives encode()'s ids; from each boundary on an encoder that begins there gives the
/// rest; and one that begins anywhere gives the same boundaries and ids as soon as it shares one.
void check_pieces(const Tokenizer& tokenizer, const std::string& text) {
  const Ids expected = tokenizer.encode(text);
  const auto encoder = tokenizer.document_encoder();
  const auto sizes = [&] { return *rc::gen::inRange<size_t>(1, 51); };
  const EncodedPieces read = encode_in_pieces(*encoder, true, text, sizes);
  RC_ASSERT(read.ids == expected);
  RC_ASSERT(!read.boundaries.empty());
  const auto end = static_cast<int64_t>(text.size());
  const DocumentEncoder::Boundary last{end, static_cast<int64_t>(expected.size())};
  RC_ASSERT(read.boundaries.back() == last);
  RC_ASSERT(std::ranges::is_sorted(read.boundaries, {}, &DocumentEncoder::Boundary::offset));
  for (const auto& [offset, tokens] : read.boundaries) {
    const EncodedPieces rest =
        encode_in_pieces(*encoder, false, std::string_view(text).substr(offset), sizes);
    RC_ASSERT(rest.ids == Ids(expected.begin() + tokens, expected.end()));
  }
  const size_t begin = next_character(text, *rc::gen::inRange<size_t>(0, text.size() + 1));
  const EncodedPieces guess =
      encode_in_pieces(*encoder, false, std::string_view(text).substr(begin), sizes);
  for (size_t i = 0; i < guess.boundaries.size(); ++i) {
    const int64_t offset = guess.boundaries[i].offset + static_cast<int64_t>(begin);
    const auto same =
        std::ranges::find(read.boundaries, offset, &DocumentEncoder::Boundary::offset);
    if (same == read.boundaries.end()) continue;
    RC_ASSERT(Ids(guess.ids.begin() + guess.boundaries[i].tokens, guess.ids.end()) ==
              Ids(expected.begin() + same->tokens, expected.end()));
    RC_ASSERT(offsets_from(guess, i, begin) ==
              offsets_from(read, static_cast<size_t>(same - read.boundaries.begin()), 0));
    break;
  }
}

class Pieces : public ::testing::TestWithParam<const char*> {};

TEST_P(Pieces, GiveTheIdsOfTheWhole) {
  const auto tokenizer = load_tokenizer(tokenizer_fixture(GetParam()));
  EXPECT_TRUE(rc::check("hostile text", [&] { check_pieces(*tokenizer, *hostile_text()); }));
  EXPECT_TRUE(rc::check("any text", [&] { check_pieces(*tokenizer, *any_text()); }));
  for (const std::string& text : corpus_texts()) {
    const auto encoder = tokenizer->document_encoder();
    EXPECT_EQ(encode_in_pieces(*encoder, true, text, [] { return 3; }).ids,
              tokenizer->encode(text));
  }
}

INSTANTIATE_TEST_SUITE_P(BpeDocumentEncoder, Pieces,
                         ::testing::Values("gpt_neox", "gpt2", "llama3", "qwen", "dolma2",
                                           "several", "added", "gemma"));

TEST(BpeDocumentEncoder, AddedTokensNormalisationAndPrefixSpaces) {
  for (const bool nfc : {false, true}) {
    for (const bool prefix : {false, true}) {
      const auto tokenizer = hostile_tokenizer(nfc, prefix);
      EXPECT_TRUE(rc::check("hostile text", [&] { check_pieces(*tokenizer, *hostile_text()); }));
    }
  }
}

/// All bytes and merges of tokens of some letters, at random.
BpeDescription random_merges(bool ignores_merges) {
  BpeDescription description;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    description.vocabulary.emplace_back(symbol_of_byte(static_cast<uint8_t>(byte)), byte);
  }
  for (const char* letter : {"a", "b", "c"}) tokens.emplace_back(letter);
  int32_t id = 256;
  const auto is_token = [&](const std::string& symbols) {
    return std::ranges::find(description.vocabulary, symbols,
                             &std::pair<std::string, int32_t>::first) !=
           description.vocabulary.end();
  };
  const int count = *rc::gen::inRange(0, 40);
  for (int i = 0; i < count; ++i) {
    const std::string left = *rc::gen::elementOf(tokens);
    const std::string right = *rc::gen::elementOf(tokens);
    if (!is_token(left + right)) {
      description.vocabulary.emplace_back(left + right, id++);
      tokens.push_back(left + right);
    }
    const MergePair merge{left, right};
    if (std::ranges::find(description.merges, merge) == description.merges.end()) {
      const auto at = *rc::gen::inRange<size_t>(0, description.merges.size() + 1);
      description.merges.insert(description.merges.begin() + static_cast<int64_t>(at), merge);
    }
  }
  if (ignores_merges && !is_token("abcabcb")) {
    description.vocabulary.emplace_back("abcabcb", id++);
  }
  description.vocabulary.emplace_back("<end>", id);
  description.added_tokens.push_back({.id = id, .content = "<end>", .special = true});
  description.ignores_merges = ignores_merges;
  return description;
}

RC_GTEST_PROP(BpeDocumentEncoder, RandomMergesOfWordsWithoutEnd, (bool ignores_merges)) {
  BpeDescription description = random_merges(ignores_merges);
  const int pattern = *rc::gen::inRange(0, 4);
  if (pattern == 1) description.splits.push_back({"[ab]{1,3}", true});
  if (pattern == 2) description.splits = {{"c+(?=a)", true}, {"[ab]+|c", true}};
  if (pattern == 3) description.splits = {{"(?<=c)a+", true}};
  const auto tokenizer = tokenizer_of(description, "<end>");
  const auto text = *rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  check_pieces(*tokenizer, text);
}

/// Beyond what an encoder holds at once.
RC_GTEST_PROP(BpeDocumentEncoder, LongWords, (uint64_t seed, bool matched)) {
  BpeDescription description = random_merges(false);
  if (matched) description.splits.push_back({"[abc]+", true});
  const auto tokenizer = tokenizer_of(description, "<end>");
  const CounterRandom random(seed, "word");
  const uint64_t period = *rc::gen::inRange<uint64_t>(1, 400);  // or hardly any repetition
  std::string text;
  const size_t size = 3 * OpenPiece::kWindow + random.bits(0) % 1000;
  for (uint64_t i = 0; i < size; ++i) {
    text.push_back("abc"[random.bits(period < 200 ? i % period : i) % 3]);
  }
  const auto encoder = tokenizer->document_encoder();
  const EncodedPieces read = encode_in_pieces(*encoder, true, text, [&] { return 1000; });
  RC_ASSERT(read.ids == tokenizer->encode(text));
  if (matched) return;
  // Each token's end is a boundary, wherever an encoder begins.
  RC_ASSERT(read.boundaries.size() == read.ids.size());
  const auto [offset, tokens] = read.boundaries[read.boundaries.size() / 2];
  const EncodedPieces rest =
      encode_in_pieces(*encoder, false, std::string_view(text).substr(offset), [&] { return 777; });
  RC_ASSERT(rest.ids == Ids(read.ids.begin() + tokens, read.ids.end()));
}

}  // namespace
}  // namespace tessera
