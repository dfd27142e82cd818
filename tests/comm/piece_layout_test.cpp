#include "comm/piece_layout.h"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using Block = std::vector<int64_t>;

/// Places in the whole, places in the piece and lengths.
std::vector<Block> blocks(const PieceLayout& layout, int position) {
  std::vector<Block> result;
  layout.for_each_range(position, [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
    result.push_back({whole_offset, piece_offset, length});
  });
  return result;
}

TEST(PieceLayout, OfRowsIsOneBlock) {
  const PieceLayout layout = pieces_of(Shape{4, 3}, sharded(0), 2);
  EXPECT_EQ(blocks(layout, 0), (std::vector<Block>{{0, 0, 6}}));
  EXPECT_EQ(blocks(layout, 1), (std::vector<Block>{{6, 0, 6}}));
  EXPECT_TRUE(layout.is_contiguous(1));
  EXPECT_TRUE(layout.is_even());
  EXPECT_EQ(layout.text(), "1 x [4] x 3: 0-1 | 2-3");
}

TEST(PieceLayout, OfColumnsHasABlockInEachRow) {
  const PieceLayout layout = pieces_of(Shape{2, 4}, sharded(1), 2);
  EXPECT_EQ(blocks(layout, 1), (std::vector<Block>{{2, 0, 2}, {6, 2, 2}}));
  EXPECT_FALSE(layout.is_contiguous(1));
  EXPECT_FALSE(layout.is_even());
}

/// Two sequences of four positions: each rank has half of each sequence.
TEST(PieceLayout, OfPositionsHasABlockInEachSequence) {
  const PieceLayout layout = pieces_of(Shape{8, 3}, sharded(0, {}, 1, 2), 2);
  EXPECT_EQ(blocks(layout, 0), (std::vector<Block>{{0, 0, 6}, {12, 6, 6}}));
  EXPECT_EQ(blocks(layout, 1), (std::vector<Block>{{6, 0, 6}, {18, 6, 6}}));
}

TEST(PieceLayout, OfZigzagHasTwoBlocksButForTheLastRank) {
  const PieceLayout layout = pieces_of(Shape{8}, sharded(0, {.kind = PieceKind::zigzag}), 2);
  EXPECT_EQ(blocks(layout, 0), (std::vector<Block>{{0, 0, 2}, {6, 2, 2}}));
  EXPECT_EQ(blocks(layout, 1), (std::vector<Block>{{2, 0, 4}}));
  EXPECT_FALSE(layout.is_even());
}

/// A part of a piece may begin and end within ranges, and in any block.
TEST(PieceLayout, VisitsTheRangesOfAPart) {
  const std::vector<Pieces> kinds{
      {}, {.kind = PieceKind::zigzag}, {.kind = PieceKind::uneven, .sizes = {3, 0, 9}}};
  for (const Pieces& pieces : kinds) {
    const PieceLayout layout = pieces_of(Shape{3, 12, 2}, sharded(1, pieces), 3);
    for (int position = 0; position < 3; ++position) {
      std::vector<int64_t> whole_of_piece;
      for (const Block& block : blocks(layout, position)) {
        for (int64_t i = 0; i < block[2]; ++i) whole_of_piece.push_back(block[0] + i);
      }
      const auto elements = std::ssize(whole_of_piece);
      for (int64_t begin = 0; begin <= elements + 1; ++begin) {
        for (int64_t end = begin; end <= elements; ++end) {
          std::vector<int64_t> visited;
          const auto visit = [&](int64_t whole_offset, int64_t piece_offset, int64_t length) {
            EXPECT_EQ(piece_offset, begin + std::ssize(visited));
            for (int64_t i = 0; i < length; ++i) visited.push_back(whole_offset + i);
          };
          layout.for_each_range(position, begin, end - begin, visit);
          EXPECT_EQ(visited,
                    std::vector(whole_of_piece.begin() + begin, whole_of_piece.begin() + end));
        }
      }
    }
  }
  const PieceLayout layout = pieces_of(Shape{2, 12}, sharded(1, kinds[2]), 3);
  layout.for_each_range(1, 8, 0, [](int64_t, int64_t, int64_t) { FAIL() << "of an empty piece"; });
}

TEST(PieceLayout, OfUnevenPiecesMayHaveEmptyOnes) {
  const Pieces pieces{.kind = PieceKind::uneven, .sizes = {3, 0, 2}};
  const PieceLayout layout = pieces_of(Shape{5, 2}, sharded(0, pieces), 3);
  EXPECT_EQ(layout.elements(0), 6);
  EXPECT_EQ(layout.elements(1), 0);
  EXPECT_EQ(blocks(layout, 1), std::vector<Block>{});
  EXPECT_EQ(blocks(layout, 2), (std::vector<Block>{{6, 0, 4}}));
  EXPECT_FALSE(layout.is_even());
  EXPECT_EQ(layout.text(), "1 x [5] x 2: 0-2 | none | 3-4");
}

TEST(PieceLayout, EvenBlocksAreInTheOrderOfTheRanks) {
  EXPECT_TRUE(PieceLayout(1, 4, 1, {{{0, 2}}, {{2, 2}}}).is_even());
  EXPECT_FALSE(PieceLayout(1, 4, 1, {{{2, 2}}, {{0, 2}}}).is_even());
  EXPECT_TRUE(PieceLayout(3, 4, 1, {{{0, 4}}}).is_even());
}

TEST(PieceLayout, RefusesRunsThatOverlapOrLeaveHoles) {
  EXPECT_THROW(PieceLayout(1, 4, 1, {{{0, 2}}, {{1, 3}}}), InternalError);
  EXPECT_THROW(PieceLayout(1, 4, 1, {{{0, 1}}, {{2, 2}}}), InternalError);
  EXPECT_THROW(PieceLayout(1, 4, 1, {{{0, 2}}, {{2, 1}}}), InternalError);
}

TEST(PieceLayout, RefusesWhatDoesNotDivide) {
  EXPECT_EQ(error_of([] { even_pieces(7, 2); }), "7 elements do not divide into 2 even pieces");
}

TEST(PieceLayout, DifferentLayoutsHaveDifferentFingerprints) {
  const PieceLayout layout = even_pieces(8, 2);
  EXPECT_EQ(layout.hash(), PieceLayout(1, 8, 1, {{{0, 1}, {1, 3}}, {{4, 4}}}).hash());
  EXPECT_NE(layout.hash(), PieceLayout(1, 8, 1, {{{4, 4}}, {{0, 4}}}).hash());
  EXPECT_NE(layout.hash(), PieceLayout(2, 4, 1, {{{0, 2}}, {{2, 2}}}).hash());
  EXPECT_NE(layout.hash(), pieces_of(Shape{8}, sharded(0, {.kind = PieceKind::zigzag}), 2).hash());
}

}  // namespace
}  // namespace tessera
