#include "comm/piece_indices.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RC_GTEST_PROP(Pieces, ThatAreNearlyEvenDifferByAPackAtMost, ()) {
  const int ranks = *rc::gen::inRange(1, 20);
  const int64_t extent = *rc::gen::inRange<int64_t>(ranks, 1000);
  const Pieces pieces = nearly_even(extent, ranks);
  if (extent % ranks == 0) {
    RC_ASSERT(pieces == Pieces{});
    return;
  }
  const std::vector<int64_t>& sizes = pieces.sizes;
  RC_ASSERT(pieces.kind == PieceKind::uneven && std::ssize(sizes) == ranks);
  RC_ASSERT(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == extent);
  const int64_t pack = extent >= 8 * ranks ? 8 : 1;
  RC_ASSERT(std::ranges::all_of(sizes.begin(), sizes.end() - 1,
                                [&](int64_t size) { return size % pack == 0; }));
  RC_ASSERT(std::ranges::is_sorted(sizes, std::greater()));
  RC_ASSERT(sizes.back() > 0 && sizes.front() - sizes[sizes.size() - 2] <= pack);
  RC_ASSERT(sizes.front() - sizes.back() < 2 * pack);
}

TEST(Pieces, NearlyEvenOnes) {
  EXPECT_THAT(nearly_even(257, 2).sizes, ElementsAre(136, 121));
  EXPECT_THAT(nearly_even(257, 4).sizes, ElementsAre(72, 64, 64, 57));
  EXPECT_THAT(nearly_even(10, 4).sizes, ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(nearly_even(256, 4).sizes, ElementsAre());
  EXPECT_THAT(error_of([] { nearly_even(3, 4); }), HasSubstr("3 elements are too few for 4 ranks"));
}

/// A rank without a part of the whole knows it too.
TEST(LogicalExtent, OfUnevenPiecesIsThatOfTheirSizes) {
  const Mesh mesh({.tensor = 2, .data = {2}, .expert = 2});
  const TypeOnAxis one_has_all = sharded(0, {PieceKind::uneven, {8, 0}});
  for (const int64_t own : {8, 0}) {
    EXPECT_EQ(logical_extent(mesh, Distribution().with(mesh.tensor(), one_has_all), 0, own), 8);
    EXPECT_EQ(joined_extent(one_has_all, 2, own), 8);
    const Distribution halves =
        Distribution().with(mesh.data()[0], sharded(0)).with(mesh.tensor(), one_has_all);
    EXPECT_EQ(logical_extent(mesh, halves, 0, own), 16);
  }
  const TypeOnAxis in_rows = sharded(0, {PieceKind::uneven, {3, 5}}, 1, 3);
  EXPECT_EQ(logical_extent(mesh, Distribution().with(mesh.tensor(), in_rows), 0, 9), 24);
  EXPECT_EQ(logical_extent(mesh, Distribution().with(mesh.tensor(), in_rows), 0, 15), 24);
  // Sizes of another dim are no divisor of anything: 12 rows are none of 9 and 15.
  EXPECT_THAT(
      error_of([&] { logical_extent(mesh, Distribution().with(mesh.tensor(), in_rows), 0, 12); }),
      AllOf(HasSubstr("a rank has 12 elements"), HasSubstr("uneven 3 + 5, factor 1, repeated 3")));
  // The same tokens, seen by experts.
  Pieces own{.kind = PieceKind::tokens};
  own.origin = std::make_shared<const Distribution>(Distribution()
                                                        .with(mesh.data()[0], sharded(0))
                                                        .with(mesh.context(), sharded(0))
                                                        .with(mesh.tensor(), in_rows));
  const Distribution one_axis =
      Distribution(MeshView::expert).with(mesh.expert_data()[0], varying(0, own));
  EXPECT_EQ(logical_extent(mesh, one_axis.with(mesh.expert(), varying(0, own)), 0, 9), 48);
  EXPECT_THAT(error_of([&] { logical_extent(mesh, one_axis, 0, 9); }),
              HasSubstr("how many tokens"));
}

TEST(Piece, Divides) {
  EXPECT_THAT(piece_indices(6, 1, 3, {}), ElementsAre(2, 3));
  EXPECT_THAT(piece_indices(8, 0, 2, {.kind = PieceKind::zigzag}), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(piece_indices(8, 1, 2, {.kind = PieceKind::zigzag}), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(piece_indices(3, 0, 1, {.kind = PieceKind::zigzag}), ElementsAre(0, 1, 2));
  EXPECT_THAT(piece_indices(5, 1, 3, {.kind = PieceKind::uneven, .sizes = {1, 3, 1}}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(error_of([] { piece_indices(7, 0, 2, {}); }), AllOf(HasSubstr("7"), HasSubstr("2")));
  EXPECT_THAT(error_of([] { piece_indices(6, 0, 2, {.kind = PieceKind::zigzag}); }),
              AllOf(HasSubstr("6"), HasSubstr("4 zigzag")));
  EXPECT_THROW(piece_indices(6, 0, 2, {.kind = PieceKind::exchange, .identity = 1}), InternalError);
}

/// 2 sequences of 8 positions in one dim, split by context in zigzag and by tensor evenly within.
TEST(Piece, OfAFactorRepeats) {
  const Mesh mesh({.tensor = 2, .context = 2});
  const Distribution tokens =
      Distribution()
          .with(mesh.context(), sharded(0, {.kind = PieceKind::zigzag}, 1, 2))
          .with(mesh.tensor(), sharded(0, {}, 1, 2));
  EXPECT_THAT(piece_of_dim(mesh, tokens, 0, 16, 0), ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(piece_of_dim(mesh, tokens, 0, 16, 1), ElementsAre(6, 7, 14, 15));
  EXPECT_THAT(piece_of_dim(mesh, tokens, 0, 16, 2), ElementsAre(2, 3, 10, 11));
}

RC_GTEST_PROP(Piece, PiecesPartTheDim, ()) {
  const Mesh mesh({.tensor = *rc::gen::inRange(1, 4),
                   .context = *rc::gen::inRange(1, 4),
                   .data = {*rc::gen::inRange(1, 4)}});
  const int64_t sequences = *rc::gen::inRange(1, 4);
  const int64_t positions = 2 * mesh.size(mesh.context()) * mesh.size(mesh.tensor());
  const int64_t extent = sequences * mesh.size(mesh.data()[0]) * positions;
  const Distribution tokens =
      Distribution()
          .with(mesh.data()[0], sharded(0))
          .with(mesh.context(), sharded(0, {.kind = PieceKind::zigzag}, 1, sequences))
          .with(mesh.tensor(), sharded(0, {}, 1, sequences));
  std::vector<int64_t> all;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int64_t> own = piece_of_dim(mesh, tokens, 0, extent, rank);
    RC_ASSERT(static_cast<int64_t>(own.size()) * mesh.ranks() == extent);
    all.insert(all.end(), own.begin(), own.end());
  }
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) RC_ASSERT(all[i] == static_cast<int64_t>(i));
}

}  // namespace
}  // namespace tessera
