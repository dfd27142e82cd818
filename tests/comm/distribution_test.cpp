#include "comm/distribution.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

constexpr Axis kTensor{0};
constexpr Axis kContext{1};
constexpr Axis kData{5};

TypeOnAxis any_type() {
  const int dim = *rc::gen::inRange(0, 3);
  const PieceKind kind = *rc::gen::element(PieceKind::even, PieceKind::zigzag, PieceKind::flat);
  return *rc::gen::element(invariant(), replicated(), partial(), sharded(dim, {.kind = kind}),
                           varying(dim, {.kind = PieceKind::exchange, .identity = 3}));
}

Distribution any_distribution() {
  Distribution distribution;
  for (int axis = 0; axis < 6; ++axis) distribution = distribution.with({axis}, any_type());
  return distribution;
}

RC_GTEST_PROP(Distribution, TheDualOfTheDualIsTheTypeItself, ()) {
  const Distribution distribution = any_distribution();
  RC_ASSERT(distribution.dual().dual() == distribution);
}

RC_GTEST_PROP(Distribution, TheDualSwapsReplicatedAndPartialOnly, ()) {
  const Distribution distribution = any_distribution();
  for (int i = 0; i < 6; ++i) {
    const TypeOnAxis before = distribution.on({i});
    const TypeOnAxis after = distribution.dual().on({i});
    if (before == replicated()) {
      RC_ASSERT(after == partial());
    } else if (before == partial()) {
      RC_ASSERT(after == replicated());
    } else {
      RC_ASSERT(after == before);
    }
  }
}

/// The order of a dim's splits is that in which they came; each split axis stands in one.
RC_GTEST_PROP(Distribution, OrdersHaveEverySplitOnce, ()) {
  Distribution distribution = any_distribution();
  const Axis again{*rc::gen::inRange(0, 6)};
  distribution = distribution.with(again, any_type());
  for (int i = 0; i < 6; ++i) {
    int found = 0;
    for (int dim = 0; dim < 3; ++dim) {
      const auto order = distribution.order(dim);
      found += static_cast<int>(std::ranges::count(order, Axis{i}));
      if (std::ranges::find(order, Axis{i}) != order.end()) {
        RC_ASSERT(distribution.on({i}).dim == dim);
      }
    }
    RC_ASSERT(found == (distribution.on({i}).split() ? 1 : 0));
  }
}

TEST(Distribution, ANewSplitIsTheInnermost) {
  Distribution distribution = Distribution().with(kContext, sharded(0)).with(kTensor, sharded(0));
  EXPECT_THAT(distribution.order(0), ElementsAre(kContext, kTensor));
  distribution = distribution.with(kContext, {}).with(kContext, sharded(0));
  EXPECT_THAT(distribution.order(0), ElementsAre(kTensor, kContext));
  EXPECT_EQ(distribution.with(kContext, {}).with(kTensor, {}), Distribution());
}

TEST(Distribution, SaysItsTypes) {
  const Mesh mesh;
  EXPECT_EQ(Distribution().text(mesh), "invariant");
  const Distribution distribution =
      Distribution()
          .with(kContext, sharded(1, {.kind = PieceKind::zigzag}, 1, 4))
          .with(kData, partial())
          .with(kTensor, replicated());
  EXPECT_EQ(
      distribution.text(mesh),
      "tensor: replicated, context: sharded (dim 1, zigzag, factor 1, repeated 4 times), data: "
      "partial");
}

/// What is refused because it is not equal must not read the same.
TEST(Distribution, SaysAllThatMakesTypesDiffer) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const auto tokens_of = [](const TypeOnAxis& type) {
    Pieces pieces{.kind = PieceKind::tokens};
    pieces.origin = std::make_shared<const Distribution>(Distribution().with(kTensor, type));
    return varying(0, pieces);
  };
  const std::vector<TypeOnAxis> types{sharded(0),
                                      sharded(0, {}, 1),
                                      sharded(0, {}, 0, 2),
                                      sharded(0, {}, 0, 4),
                                      sharded(0, {PieceKind::uneven, {3, 5}}),
                                      sharded(0, {PieceKind::uneven, {5, 3}}),
                                      tokens_of(sharded(0, {PieceKind::uneven, {3, 5}})),
                                      tokens_of(sharded(0, {PieceKind::uneven, {5, 3}})),
                                      tokens_of(sharded(0, {}, 1, 2))};
  std::set<std::string> texts;
  for (const TypeOnAxis& type : types) texts.insert(type.text(&mesh));
  EXPECT_EQ(texts.size(), types.size());
  EXPECT_EQ(types[4].text(), "sharded (dim 0, uneven 3 + 5)");
  EXPECT_EQ(types[6].text(), "varying (dim 0, tokens)");
  EXPECT_EQ(types[6].text(&mesh),
            "varying (dim 0, tokens that are tensor: sharded (dim 0, uneven 3 + 5))");
  const Distribution mesh_order = Distribution().with(kData, sharded(0)).with(kTensor, sharded(0));
  const Distribution other = Distribution().with(kTensor, sharded(0)).with(kData, sharded(0));
  EXPECT_EQ(mesh_order.text(mesh), "tensor: sharded (dim 0, even), data: sharded (dim 0, even)");
  EXPECT_EQ(other.text(mesh), mesh_order.text(mesh) + ", dim 0 over tensor, data, outermost first");
  EXPECT_NE(Distribution(MeshView::expert).text(mesh), Distribution().text(mesh));
}

}  // namespace
}  // namespace tessera
