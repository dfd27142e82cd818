#include <cstdlib>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/utf8.h"
#include "data/sentencepiece/models.h"
#include "data/sentencepiece/trained_models.h"

namespace tessera {
namespace {

using testing::any_description;
using testing::bare_description;
using testing::both;
using testing::BothEncoders;
using testing::Encoded;
using testing::mixed_lines;
using testing::mixed_text;
using testing::model_file;
using testing::model_names;
using testing::name_of_test;
using testing::text_of_few_characters;

/// The text cut between characters into pieces of 1 to 50 bytes or a little more.
std::vector<std::string_view> in_pieces(std::string_view text, uint64_t seed) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const size_t size = next_character(text, std::min(text.size(), 1 + (seed >> 33) % 50));
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return pieces;
}

std::string valid(const std::string& text) {
  std::string buffer;
  int64_t replaced = 0;
  return std::string(repair_utf8(text, buffer, replaced));
}

/// Text as it is met, a good part of it without spaces, and rarely so long that stretches end.
std::string long_text(size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    for (const std::string& line : mixed_lines()) text += line.substr(i % line.size()) + "\n";
    for (int j = 0; j < 200; ++j) text += "fox日本語" + std::to_string(i * 7 + 13);
    text += "  " + random_text(1000 + i, 300);
  }
  text = valid(text);
  text.resize(next_character(text, bytes));
  return text;
}

/// Returns whether both give the same ids after each boundary that both have. Adds the number of
/// such boundaries to `common`.
bool agree_after(const Encoded& whole, const Encoded& part, int64_t part_begin, int64_t& common) {
  const auto ids_after = [](const Encoded& all, const DocumentEncoder::Boundary& boundary) {
    return std::vector<int32_t>(all.ids.begin() + boundary.tokens, all.ids.end());
  };
  for (const auto& boundary : part.boundaries) {
    const auto same = std::ranges::find(whole.boundaries, boundary.offset + part_begin,
                                        &DocumentEncoder::Boundary::offset);
    if (same == whole.boundaries.end()) continue;
    ++common;
    if (ids_after(whole, *same) != ids_after(part, boundary)) return false;
  }
  return true;
}

class SentencePieceStreams : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceStreams, GiveTheIdsOfTheWhole) {
  BothEncoders& encoders = both(GetParam());
  rc::check([&] {
    const std::string text = valid(*mixed_text());
    const Encoded whole = encoders.encoded({text});
    const Encoded streamed = encoders.encoded(in_pieces(text, *rc::gen::arbitrary<uint64_t>()));
    RC_ASSERT(streamed.ids == whole.ids);
    RC_ASSERT(streamed.boundaries == whole.boundaries);
    RC_ASSERT(whole.ids == encoders.library(text));
  });
  const std::string text = long_text(80000);
  const Encoded whole = encoders.encoded({text});
  const Encoded streamed = encoders.encoded(in_pieces(text, 1));
  EXPECT_TRUE(streamed.ids == whole.ids);
  EXPECT_TRUE(streamed.boundaries == whole.boundaries);
  EXPECT_GT(whole.boundaries.size(), 5U);
}

/// As when several threads encode stretches of one document.
TEST_P(SentencePieceStreams, AgreeAfterACommonBoundary) {
  BothEncoders& encoders = both(GetParam());
  const std::string text = long_text(80000);
  const Encoded whole = encoders.encoded({text});
  for (size_t i = 1; i < 4; ++i) {
    const size_t begin = next_character(text, i * 14477);
    const Encoded part = encoders.encoded({std::string_view(text).substr(begin)}, false);
    int64_t common = 0;
    EXPECT_TRUE(agree_after(whole, part, static_cast<int64_t>(begin), common)) << begin;
    EXPECT_GT(common, 3) << begin;  // beside the end
  }
  for (const auto& [offset, tokens] : whole.boundaries) {  // and where one goes on at a boundary
    if (offset % 17 != 0) continue;
    const auto begin = static_cast<size_t>(offset);
    const Encoded rest = encoders.encoded({std::string_view(text).substr(begin)}, false);
    EXPECT_TRUE(std::ranges::equal(rest.ids, std::span(whole.ids).subspan(tokens))) << offset;
  }
}

/// A character over and over has no offset at which a word ends.
TEST_P(SentencePieceStreams, HoldLittleBackOfTextWithoutSpaces) {
  BothEncoders& encoders = both(GetParam());
  for (const std::string part : {"a", "東", "0123456789abcdef", "  "}) {
    std::string text;
    while (text.size() < 70000) text += part;
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size(); at += 4800) {
      pieces.push_back(std::string_view(text).substr(at, 4800));
    }
    const Encoded streamed = encoders.encoded(pieces);
    EXPECT_LT(encoders.most_held(), size_t{320} << 10) << part;
    EXPECT_TRUE(streamed.ids == encoders.encoded({text}).ids) << part;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceStreams, ::testing::ValuesIn(model_names()),
                         name_of_test);

void check_any_stream(SentencePieceAlgorithm algorithm) {
  BothEncoders encoders(model_file(any_description(algorithm)));
  for (int i = 0; i < 5; ++i) {
    const std::string text = valid(text_of_few_characters());
    const Encoded whole = encoders.encoded({text});
    const Encoded streamed = encoders.encoded(in_pieces(text, static_cast<uint64_t>(i)));
    RC_ASSERT(streamed.ids == whole.ids);
    RC_ASSERT(streamed.boundaries == whole.boundaries);
    const size_t begin = next_character(text, *rc::gen::inRange<size_t>(0, text.size() + 1));
    const Encoded part = encoders.encoded({std::string_view(text).substr(begin)}, false);
    int64_t common = 0;
    RC_ASSERT(agree_after(whole, part, static_cast<int64_t>(begin), common));
  }
}

RC_GTEST_PROP(SentencePieceStream, OfAnyUnigramGivesTheIdsOfTheWhole, ()) {
  check_any_stream(SentencePieceAlgorithm::unigram);
}

RC_GTEST_PROP(SentencePieceStream, OfAnyBpeGivesTheIdsOfTheWhole, ()) {
  check_any_stream(SentencePieceAlgorithm::bpe);
}

/// Where no word ends, tokens are those of the library all the same: byte-pair encoding is exact.
TEST(SentencePieceStream, OfBpeIsTheLibrarysWithoutPlacesToCut) {
  for (const std::string name : {"bpe with bytes", "bpe with symbols", "bpe over spaces"}) {
    BothEncoders& encoders = both(name);
    uint64_t seed = 7;
    for (const std::string alphabet : {"ao", "the quick "}) {
      std::string text;
      for (int i = 0; i < 60000; ++i) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        text += alphabet[(seed >> 40) % alphabet.size()];
      }
      EXPECT_TRUE(encoders.encoded(in_pieces(text, seed)).ids == encoders.library(text))
          << name << ": " << alphabet;
    }
  }
}

/// The same with pieces of two letters in any order of their scores, so that every offset is
/// within some piece.
TEST(SentencePieceStream, OfBpeIsTheLibrarysWherePiecesLieOverEveryPlace) {
  uint64_t seed = 3;
  const auto draw = [&](uint64_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 40) % below;
  };
  for (int i = 0; i < 6; ++i) {
    SentencePieceDescription description = bare_description(false);
    description.algorithm = SentencePieceAlgorithm::bpe;
    for (const std::string text :
         {"a", "b", "aa", "ab", "ba", "bb", "aab", "aba", "abab", "bba", "aaaa", "baab"}) {
      description.pieces.push_back({text, -static_cast<float>(draw(5)), PieceType::normal});
    }
    BothEncoders encoders(model_file(description));
    const uint64_t rarity = 2 + draw(40);
    std::string text;
    for (int j = 0; j < 70000; ++j) text += draw(rarity) == 0 ? 'b' : 'a';
    EXPECT_TRUE(encoders.ours(text) == encoders.library(text));
  }
}

}  // namespace
}  // namespace tessera
