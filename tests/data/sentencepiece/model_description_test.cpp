#include "data/sentencepiece/model_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/bpe/fixtures.h"
#include "data/sentencepiece/models.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::MessageWriter;

SentencePieceDescription read(const std::string& model) {
  return read_sentencepiece_description(model, "x.model");
}

TEST(SentencePieceDescription, HasWhatTheLibraryReads) {
  const std::string model = read_file(tokenizer_fixture("sentencepiece/tokenizer.model"));
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
  const SentencePieceDescription description = read(model);
  ASSERT_EQ(description.pieces.size(), static_cast<size_t>(library.GetPieceSize()));
  for (size_t i = 0; i < description.pieces.size(); ++i) {
    const int id = static_cast<int>(i);
    const SentencePiece& piece = description.pieces[i];
    EXPECT_EQ(piece.text, library.IdToPiece(id));
    EXPECT_EQ(piece.score, library.GetScore(id));
    EXPECT_EQ(piece.type == PieceType::unknown, library.IsUnknown(id));
    EXPECT_EQ(piece.type == PieceType::control, library.IsControl(id));
    EXPECT_EQ(piece.type == PieceType::byte, library.IsByte(id));
  }
  EXPECT_EQ(description.algorithm, SentencePieceAlgorithm::bpe);
  EXPECT_TRUE(description.byte_fallback);
  EXPECT_TRUE(description.adds_dummy_space);
  EXPECT_FALSE(description.removes_extra_whitespace);
  EXPECT_TRUE(description.escapes_whitespace);
  EXPECT_FALSE(description.whitespace_as_suffix);
  EXPECT_EQ(description.character_map, "");
}

TEST(SentencePieceDescription, KeepsTheFormatsInitialValues) {
  const SentencePieceDescription description = read("");
  EXPECT_TRUE(description.pieces.empty());
  EXPECT_EQ(description.algorithm, SentencePieceAlgorithm::unigram);
  EXPECT_TRUE(description.adds_dummy_space);
  EXPECT_TRUE(description.removes_extra_whitespace);
}

TEST(SentencePieceDescription, PassesOverWhatItDoesNotKnow) {
  const std::string piece =
      MessageWriter().text(1, "a").number(3, 99).number(2, 7).text(200, "new").real(7, 1).bytes();
  const SentencePieceDescription description =
      read(MessageWriter().text(1, piece).text(77, "x").number(78, uint64_t{1} << 63).bytes());
  ASSERT_EQ(description.pieces.size(), 1U);
  EXPECT_EQ(description.pieces[0].text, "a");
  EXPECT_EQ(description.pieces[0].type, PieceType::normal);  // 99 is none
  EXPECT_EQ(description.pieces[0].score, 0);                 // of another wire type
}

TEST(SentencePieceDescription, LaterFieldsAddToEarlierOnes) {
  const SentencePieceDescription description =
      read(MessageWriter()
               .text(2, MessageWriter().number(3, 2).bytes())
               .text(2, MessageWriter().number(35, 1).bytes())
               .bytes());
  EXPECT_EQ(description.algorithm, SentencePieceAlgorithm::bpe);
  EXPECT_TRUE(description.byte_fallback);
}

TEST(SentencePieceDescription, RefusesWhatIsNone) {
  for (const std::string& damaged : {std::string("\x0A\x05"
                                                 "ab"),            // shorter than it says
                                     std::string("\x0A"),          // ends within a field
                                     std::string("\x0B"),          // a group
                                     std::string("\x0D\x01\x02"),  // half a number
                                     std::string(20, '\xFF')}) {   // a number without end
    EXPECT_THAT(error_of([&] { read(damaged); }),
                HasSubstr("x.model is not a SentencePiece model"));
  }
  const std::string zero = MessageWriter().text(1, std::string_view("a\0b", 3)).bytes();
  EXPECT_THAT(error_of([&] { read(MessageWriter().text(1, zero).bytes()); }),
              HasSubstr("piece 0 holds a zero byte"));
}

}  // namespace
}  // namespace tessera
