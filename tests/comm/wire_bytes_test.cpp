#include "comm/wire_bytes.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

/// Sends the pieces around a ring, and counts what the rank at a position hands on. The blocks of a
/// ring are known by whose they are; `first` is the one that a rank sends first, as a distance.
int64_t sent_around_ring(const PieceLayout& layout, int position, int first) {
  const int ranks = layout.ranks();
  int64_t elements = 0;
  for (int step = 0; step + 1 < ranks; ++step) {
    elements += layout.elements(((position + first - step) % ranks + ranks) % ranks);
  }
  return elements;
}

TEST(WireBytes, AreThoseOfRings) {
  const Pieces pieces{.kind = PieceKind::uneven, .sizes = {5, 0, 2, 9}};
  const PieceLayout layout = pieces_of(Shape{16, 3}, sharded(0, pieces), 4);
  for (int position = 0; position < 4; ++position) {
    // A gather begins with the rank's own piece; a sum ends with it, so it begins one earlier.
    EXPECT_EQ(all_gather_bytes(layout, position, 4), 4 * sent_around_ring(layout, position, 0));
    EXPECT_EQ(reduce_scatter_bytes(layout, position, 4),
              4 * sent_around_ring(layout, position, -1));
  }
}

TEST(WireBytes, AreTheFormulasOfThePapersForEqualPieces) {
  const PieceLayout layout = even_pieces(24, 4);
  EXPECT_EQ(all_gather_bytes(layout, 1, 2), 24 * 2 * 3 / 4);
  EXPECT_EQ(reduce_scatter_bytes(layout, 1, 2), 24 * 2 * 3 / 4);
  EXPECT_EQ(all_reduce_bytes(24, 4, 3, 2), 24 * 2 * 2 * 3 / 4);
}

/// Over all ranks, an all-reduce sends 2(n-1) times the whole, whatever does not divide.
TEST(WireBytes, AddUp) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const int64_t elements : {0, 1, 7, 100}) {
      int64_t reduced = 0;
      for (int position = 0; position < ranks; ++position) {
        reduced += all_reduce_bytes(elements, ranks, position, 1);
      }
      EXPECT_EQ(reduced, 2 * (ranks - 1) * elements);
      EXPECT_EQ(slice_begin(elements, ranks, 0), 0);
      EXPECT_EQ(slice_begin(elements, ranks, ranks), elements);
    }
  }
}

}  // namespace
}  // namespace tessera
