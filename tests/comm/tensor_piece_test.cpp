#include "comm/tensor_piece.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TensorPiece, OfColumnsHasThemFromEveryRow) {
  const Mesh mesh({.tensor = 2});
  const TensorPiece piece(mesh, Distribution().with(mesh.tensor(), sharded(1)), {3, 4}, 1);
  EXPECT_EQ(piece.shape(), (Shape{3, 2}));
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < 6; ++i) elements.push_back(piece.element_of_whole(i));
  EXPECT_THAT(elements, ::testing::ElementsAre(2, 3, 6, 7, 10, 11));
}

TEST(TensorPiece, OfNothingSplitIsTheWhole) {
  const Mesh mesh({.tensor = 2});
  const TensorPiece piece(mesh, Distribution().with(mesh.tensor(), replicated()), {3, 4}, 1);
  EXPECT_EQ(piece.shape(), (Shape{3, 4}));
  EXPECT_EQ(piece.element_of_whole(7), 7);
  EXPECT_EQ(TensorPiece({5}).element_of_whole(4), 4);
}

TEST(TensorPiece, SaysWhatDoesNotDivide) {
  const Mesh mesh({.tensor = 3});
  EXPECT_THAT(error_of([&] {
                TensorPiece(mesh, Distribution().with(mesh.tensor(), sharded(0)), {4, 4}, 0);
              }),
              AllOf(HasSubstr("4"), HasSubstr("3")));
  const Distribution rows =
      Distribution().with(mesh.tensor(), varying(0, {.kind = PieceKind::exchange, .identity = 1}));
  EXPECT_THROW(TensorPiece(mesh, rows, {6}, 0), InternalError);
}

TEST(TensorPiece, IsTakenOutOfTheWhole) {
  const Mesh mesh({.tensor = 2, .context = 2});
  const auto expect = [&](const Distribution& distribution, int rank,
                          const std::vector<int32_t>& elements) {
    const Tensor whole({4, 4}, DType::i32);
    std::iota(whole.data<int32_t>(), whole.data<int32_t>() + 16, 0);
    const TensorPiece piece(mesh, distribution, whole.shape(), rank);
    const Tensor own(piece.shape(), DType::i32);
    piece.copy_from(whole, own);
    EXPECT_THAT(own.values<int32_t>(), ::testing::ElementsAreArray(elements));
  };
  const Distribution rows = Distribution().with(mesh.tensor(), sharded(0));
  expect(rows, 1, {8, 9, 10, 11, 12, 13, 14, 15});
  expect(rows.with(mesh.context(), sharded(1)), 1, {8, 9, 12, 13});
  expect(rows.with(mesh.context(), sharded(1)), 3, {10, 11, 14, 15});
  // In zigzag a rank has the first and the last column.
  expect(rows.with(mesh.context(), sharded(1, {.kind = PieceKind::zigzag})), 0, {0, 3, 4, 7});
  expect(Distribution(), 2, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
}

/// The pieces of all ranks have every element of the whole, each once for each rank that an axis
/// without a split repeats it on, in the order of rows.
RC_GTEST_PROP(TensorPiece, PiecesMakeUpTheWhole, ()) {
  const Mesh mesh({.tensor = *rc::gen::inRange(1, 4),
                   .context = *rc::gen::inRange(1, 3),
                   .data = {*rc::gen::inRange(1, 3)}});
  const Shape whole{24, *rc::gen::inRange(1, 3), 24};
  Distribution distribution;
  int copies = 1;
  for (const Axis axis : mesh.axes_of(MeshView::dense)) {
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        copies *= mesh.size(axis);
        break;
      case 1:
        distribution = distribution.with(axis, sharded(0));
        break;
      default:
        distribution = distribution.with(axis, sharded(2, {.kind = PieceKind::even}));
    }
  }
  std::vector<int> seen(static_cast<size_t>(whole.elements()));
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const TensorPiece piece(mesh, distribution, whole, rank);
    int64_t last = -1;
    for (int64_t i = 0; i < piece.shape().elements(); ++i) {
      const int64_t element = piece.element_of_whole(i);
      RC_ASSERT(element > last);
      last = element;
      ++seen[static_cast<size_t>(element)];
    }
  }
  RC_ASSERT(std::ranges::all_of(seen, [&](int count) { return count == copies; }));
}

TEST(TensorPiece, IsWholeOnlyInTheOrderOfTheWhole) {
  const Shape shape{4, 3};
  const std::vector<std::vector<ElementRun>> joined{{{0, 2}, {2, 2}}, {{0, 3}}};
  const std::vector<std::vector<ElementRun>> exchanged{{{2, 2}, {0, 2}}, {{0, 3}}};
  EXPECT_TRUE(TensorPiece(shape).is_whole());
  EXPECT_TRUE(TensorPiece(shape, joined).is_whole());
  EXPECT_EQ(TensorPiece(shape, joined), TensorPiece(shape));
  const TensorPiece piece(shape, exchanged);
  EXPECT_FALSE(piece.is_whole());
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < 12; ++i) elements.push_back(piece.element_of_whole(i));
  EXPECT_THAT(elements, ::testing::ElementsAre(6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5));
  const std::vector<std::vector<ElementRun>> beyond{{{2, 3}}, {{0, 3}}};
  EXPECT_THROW(TensorPiece(shape, beyond), InternalError);
}

}  // namespace
}  // namespace tessera
