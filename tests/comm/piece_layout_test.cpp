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
