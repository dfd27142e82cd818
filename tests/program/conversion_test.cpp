#include "program/conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/derived_types.h"
#include "support/refusal_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Convert : public testing::DerivedTypes {
 protected:
  std::string refusal_of(const TypedOperand& operand, const Conversion& conversion) const {
    return testing::verdict_of([&] { converted(mesh, operand, conversion); });
  }
};

TEST_F(Convert, NamesBothEnds) {
  const TypedOperand sum = value("y", {8, 6}, {{t, partial()}});
  EXPECT_EQ(converted(mesh, sum, {t, Placement::partial, invariant()}), Distribution());
  EXPECT_THAT(refusal_of(sum, {t, Placement::sharded, invariant()}),
              AllOf(HasSubstr("sharded -> invariant on tensor"), HasSubstr("'y' is partial"),
                    HasSubstr("expected sharded")));
  EXPECT_THAT(refusal_of(sum, {t, Placement::partial, partial()}), HasSubstr("no such conversion"));
  EXPECT_THAT(refusal_of(sum, {e, Placement::partial, invariant()}), HasSubstr("other view"));
}

TEST_F(Convert, JoinsTheInnermostSplitOnly) {
  const TypedOperand tokens = value("x", {8, 6}, {{c, sharded(0)}, {t, sharded(0)}});
  EXPECT_THAT(refusal_of(tokens, {c, Placement::sharded, replicated()}),
              AllOf(HasSubstr("dim 0"), HasSubstr("tensor inside it")));
  EXPECT_THAT(converted(mesh, tokens, {t, Placement::sharded, replicated()}).order(0),
              ElementsAre(c));
}

TEST_F(Convert, FromHeadsToPositions) {
  const TypedOperand heads = value("a", {8, 6}, {{c, sharded(1)}});
  const Distribution after = converted(mesh, heads, {c, Placement::sharded, sharded(0)});
  EXPECT_EQ(after.on(c), sharded(0));
  EXPECT_TRUE(after.order(1).empty());
}

class Crossing : public Convert {
 protected:
  std::string refusal_to(const TypedOperand& operand, MeshView view) const {
    return testing::verdict_of([&] { crossed(mesh, operand, view); });
  }
};

TEST_F(Crossing, TokensComeBackAsTheyWere) {
  const TypedOperand tokens = value("x", {8, 6},
                                    {{d, sharded(0)},
                                     {c, sharded(0, {.kind = PieceKind::zigzag}, 1, 2)},
                                     {t, sharded(0, {}, 1, 2)}});
  const Distribution own = crossed(mesh, tokens, MeshView::expert);
  EXPECT_EQ(own.view(), MeshView::expert);
  EXPECT_EQ(own.on(e), own.on(x));
  EXPECT_EQ(own.on(e).placement, Placement::varying);
  const TypedOperand there{"own", {{8, 6}, DType::f64, own}};
  EXPECT_EQ(crossed(mesh, there, MeshView::dense), tokens.spec.distribution);
  EXPECT_EQ(crossed(mesh, there, MeshView::expert), own);
  // The gradient has the same pieces, and another value of the same tokens too.
  EXPECT_EQ(own.dual(), own);
  EXPECT_EQ(crossed(mesh, tokens, MeshView::expert), own);
}

TEST_F(Crossing, TokensOfTwoCrossingsDoNotMeet) {
  const auto own = [&](const TypeOnAxis& context) {
    const TypedOperand tokens =
        value("x", {8, 6}, {{d, sharded(0)}, {c, context}, {t, sharded(0)}});
    return TypedOperand{"own", {{8, 6}, DType::f64, crossed(mesh, tokens, MeshView::expert)}};
  };
  EXPECT_THAT(
      refusal("n c, n c -> n c", {own(sharded(0)), own(sharded(0, {.kind = PieceKind::zigzag}))}),
      HasSubstr("the same pieces"));
}

TEST_F(Crossing, WhatIsTheSameEverywhereCrossesAsItIs) {
  const TypedOperand sum = value("counts", {4}, {{t, partial()}, {c, partial()}, {d, partial()}});
  const Distribution there = crossed(mesh, sum, MeshView::expert);
  EXPECT_EQ(there.on(e), partial());
  EXPECT_EQ(there.on(x), partial());
  EXPECT_TRUE(crossed(mesh, value("w", {4}), MeshView::expert).invariant());
}

TEST_F(Crossing, MixedTypesDoNot) {
  EXPECT_THAT(refusal_to(value("x", {8}, {{d, sharded(0)}, {c, sharded(0)}}), MeshView::expert),
              AllOf(HasSubstr("'x' cannot cross to the expert view"), HasSubstr("dim 0")));
  EXPECT_THAT(refusal_to(value("x", {8}, {{t, partial()}, {c, partial()}, {d, replicated()}}),
                         MeshView::expert),
              HasSubstr("one type over all axes"));
  EXPECT_THAT(refusal_to(value("x", {8, 2}, {{t, sharded(1)}, {c, sharded(0)}, {d, sharded(0)}}),
                         MeshView::expert),
              HasSubstr("dim 0"));
  const Pieces rows{.kind = PieceKind::exchange, .identity = 1};
  EXPECT_THAT(
      refusal_to(value("rows", {8}, {{e, sharded(0)}, {x, varying(0, rows, 1)}}, MeshView::expert),
                 MeshView::dense),
      HasSubstr("the tokens of one crossing"));
}

/// The conversion of a gradient begins with the dual of what the conversion ended with, and ends
/// with the dual of what it began with.
TEST_F(Convert, DualsGoBack) {
  const TypeOnAxis rows = varying(0, {.kind = PieceKind::exchange, .identity = 2});
  const TypeOnAxis types[] = {invariant(), replicated(), partial(), sharded(0), sharded(1), rows};
  int accepted = 0;
  for (const TypeOnAxis& before : types) {
    for (const TypeOnAxis& after : types) {
      const Conversion conversion{t, before.placement, after};
      const TypedOperand operand = value("v", {8, 8}, {{t, before}});
      if (refusal_of(operand, conversion) != "accepted") continue;
      ++accepted;
      const Conversion back = dual(conversion, before);
      const TypeOnAxis of_after = dual(after);
      EXPECT_EQ(back.from, of_after.placement);
      const TypedOperand gradient = value("g", {8, 8}, {{t, of_after}});
      EXPECT_EQ(converted(mesh, gradient, back).on(t), dual(before));
    }
  }
  // I R P to each other but I I, R R and P P, with P R; S to I R P and back twice; S S four times;
  // V R and P V.
  EXPECT_EQ(accepted, 6 + 12 + 4 + 2);
}

}  // namespace
}  // namespace tessera
