#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/piece_indices.h"
#include "program/derived_types.h"
#include "program/labelled_operation.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LabelPieces : public testing::DerivedTypes {};

/// The sequences are split after the positions, and then both are dims of an operation.
TEST_F(LabelPieces, ASplitOfSequencesInsideOneOfPositionsKeepsItsElements) {
  const TypedOperand tokens = value("x", {8, 6}, {{c, sharded(0, {}, 1, 4)}, {d, sharded(0)}});
  const Distribution before = tokens.spec.distribution;
  const Distribution after = derive("~(b s) c -> (b s) c", {tokens})[0];
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(piece_of_dim(mesh, after, 0, 32, rank), piece_of_dim(mesh, before, 0, 32, rank));
  }
}

/// The same with sequences in uneven parts, three and one of four. Their sizes count positions as
/// well, of which other ranks have the rest.
TEST_F(LabelPieces, AnUnevenSplitOfSequencesInsideOneOfPositionsIsRefused) {
  const TypedOperand tokens = value(
      "x", {3 * 4, 6},
      {{c, sharded(0, {}, 1, 4)}, {d, sharded(0, {.kind = PieceKind::uneven, .sizes = {12, 4}})}});
  EXPECT_THAT(refusal("~(b s) c -> (b s) c", {tokens}),
              AllOf(HasSubstr("'x' is sharded (dim 0, uneven 12 + 4) on data"),
                    HasSubstr("of no operand")));
}

/// Where operands say how many tokens the sizes stand for, each rank keeps its tokens: 12 and 4
/// sequences of two positions, of which every rank has one.
TEST_F(LabelPieces, AnUnevenSplitOfSequencesInsideOneOfPositionsKeepsItsElements) {
  const TypeOnAxis uneven = sharded(0, {.kind = PieceKind::uneven, .sizes = {12, 4}});
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int64_t own = mesh.coordinate(rank, d) == 0 ? 12 : 4;
    const TypedOperand tokens = value("x", {own, 6}, {{c, sharded(0, {}, 1, 16)}, {d, uneven}});
    const TypedOperand sequences = value("y", {own}, {{c, replicated()}, {d, uneven}});
    const TypedOperand positions = value("p", {1}, {{c, sharded(0)}, {d, replicated()}});
    const Distribution after =
        derive("~(b s) c, ~b, ~s -> (b s) c", {tokens, sequences, positions})[0];
    EXPECT_THAT(after.order(0), ElementsAre(d, c));
    EXPECT_EQ(after.on(c).repeats, own);
    EXPECT_EQ(piece_of_dim(mesh, after, 0, 32, rank),
              piece_of_dim(mesh, tokens.spec.distribution, 0, 32, rank));
  }
}

/// Four heads of 16 over two ranks in zigzag: the first rank would get two halves of heads.
TEST_F(LabelPieces, PiecesDoNotCutElementsThatHaveOthersInside) {
  constexpr std::string_view kHeads = "~t (h d!), t r! -> t (h d)";
  const auto refused = [&](const TypeOnAxis& type) {
    return refusal(kHeads, {value("q", {8, 32}, {{t, type}}), constant(value("r", {8, 4}))});
  };
  EXPECT_THAT(refused(sharded(1, {.kind = PieceKind::zigzag})),
              AllOf(HasSubstr("operation: 'q' is sharded (dim 1, zigzag) on tensor"),
                    HasSubstr("dim 1 is (h d)"), HasSubstr("may cut an element of h"),
                    HasSubstr("expected consecutive pieces")));
  EXPECT_THAT(refused(sharded(1, {}, 0, 2)),
              AllOf(HasSubstr("repeated 2 times"), HasSubstr("may cut an element of h")));
  EXPECT_EQ(refused(sharded(1)), "accepted");
  EXPECT_EQ(refused(sharded(1, {PieceKind::uneven, {32, 48}})), "accepted");
  // Sequences in zigzag are refused, and positions are not.
  const auto tokens = [&](const TypeOnAxis& type) {
    return refusal("~(b s) c -> b s c", {value("x", {8, 4}, {{t, type}})});
  };
  EXPECT_THAT(tokens(sharded(0, {.kind = PieceKind::zigzag})), HasSubstr("an element of b"));
  EXPECT_EQ(tokens(sharded(0, {.kind = PieceKind::zigzag}, 1, 2)), "accepted");
  // Where an operand says that a sequence has two positions, a chunk of six rows is three of them.
  const auto among = [&](int64_t rows) {
    return refusal("~(b s) c, ~s -> (b s) c",
                   {value("x", {rows, 4}, {{t, sharded(0, {.kind = PieceKind::zigzag})}}),
                    value("y", {2}, {{t, replicated()}})});
  };
  EXPECT_EQ(among(12), "accepted");
  EXPECT_THAT(among(10), HasSubstr("may cut an element of b"));
}

/// Sizes count elements of a dim: 1 and 3 sequences of 5 positions are 5 and 15 tokens.
TEST_F(LabelPieces, UnevenSizesAreThoseOfTheirDim) {
  const auto uneven = [](std::vector<int64_t> sizes) {
    return sharded(0, {PieceKind::uneven, std::move(sizes)});
  };
  const TypedOperand sequences = value("x", {1, 5, 2}, {{t, uneven({1, 3})}});
  const Distribution tokens = derive("~b s c -> (b s) c", {sequences})[0];
  EXPECT_EQ(tokens.on(t), uneven({5, 15}));
  EXPECT_EQ(logical_extent(mesh, tokens, 0, 5), 20);
  // The positions are split after the sequences, whose sizes count all of them.
  const TypedOperand both = value("x", {1, 5, 2}, {{t, uneven({1, 3})}, {c, sharded(1)}});
  const Distribution of_both = derive("~b s c -> (b s) c", {both})[0];
  EXPECT_EQ(of_both.on(t), uneven({10, 30}));
  EXPECT_EQ(logical_extent(mesh, of_both, 0, 5), 40);
  const auto rows = [&](const std::vector<int64_t>& sizes) {
    return value("rows", {5, 2}, {{t, uneven(sizes)}});
  };
  const TypedOperand positions = value("p", {5}, {{t, replicated()}});
  EXPECT_EQ(derive("~(b s) c, ~s -> b", {rows({5, 15}), positions})[0].on(t), uneven({1, 3}));
  EXPECT_THAT(refusal("~(b s) c, ~s -> b", {rows({5, 16}), positions}),
              AllOf(HasSubstr("'rows'"), HasSubstr("on tensor"),
                    HasSubstr("a piece of 16 elements is no whole number of")));
  EXPECT_THAT(refusal("~(b s) c -> b", {rows({5, 15})}),
              AllOf(HasSubstr("'rows'"), HasSubstr("on tensor"), HasSubstr("of no operand")));
  EXPECT_EQ(derive("~(b s) c -> (b s) c", {rows({5, 15})})[0].on(t), uneven({5, 15}));
  // Operands agree if the sizes are as many elements of the label.
  const auto labelled = [&](const std::vector<int64_t>& sizes) {
    return refusal("~(b s) c, ~s, ~b -> (b s) c",
                   {rows({5, 15}), positions, value("y", {1}, {{t, uneven(sizes)}})});
  };
  EXPECT_EQ(labelled({1, 3}), "accepted");
  EXPECT_THAT(labelled({5, 15}), AllOf(HasSubstr("'y'"), HasSubstr("the same pieces")));
}

}  // namespace
}  // namespace tessera
