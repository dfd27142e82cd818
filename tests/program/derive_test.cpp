#include "program/derive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/piece_indices.h"
#include "program/derived_types.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Derive : public testing::DerivedTypes {};

constexpr std::string_view kLinear = "~t i, ~o i -> t o";

TEST_F(Derive, ColumnAndRowSplitLinearMaps) {
  const TypedOperand gathered = value("x", {8, 6}, {{t, replicated()}});
  EXPECT_EQ(text(kLinear, {gathered, value("w", {4, 6}, {{t, sharded(0)}})}),
            "tensor: sharded (dim 1, even)");
  const TypedOperand features = value("x", {8, 6}, {{t, sharded(1)}});
  EXPECT_EQ(text(kLinear, {features, value("w", {4, 6}, {{t, sharded(1)}})}), "tensor: partial");
  const TypedOperand tokens = value("x", {8, 6}, {{d, sharded(0)}});
  EXPECT_EQ(text(kLinear, {tokens, value("w", {4, 6}, {{d, replicated()}})}),
            "data: sharded (dim 0, even)");
}

TEST_F(Derive, InvariantMeetsInvariantOnly) {
  const TypedOperand tokens = value("x", {8, 6}, {{d, sharded(0)}});
  EXPECT_THAT(refusal(kLinear, {tokens, value("w", {4, 6})}),
              AllOf(HasSubstr("operation: 'w' is invariant on data"), HasSubstr("'x'"),
                    HasSubstr("retype invariant -> replicated")));
  EXPECT_EQ(text(kLinear, {value("x", {8, 6}), value("w", {4, 6})}), "invariant");
  // Without a gradient there is no sum to forget.
  EXPECT_EQ(text("t c, t -> t c", {tokens, constant(value("mask", {8}, {{d, sharded(0)}}))}),
            "data: sharded (dim 0, even)");
  EXPECT_EQ(text(kLinear, {tokens, constant(value("w", {4, 6}))}), "data: sharded (dim 0, even)");
}

TEST_F(Derive, ALabelHasTheSamePiecesEverywhere) {
  const TypedOperand zigzag = value("x", {8, 6}, {{c, sharded(0, {.kind = PieceKind::zigzag})}});
  const TypedOperand even = value("y", {8, 6}, {{c, sharded(0)}});
  EXPECT_THAT(refusal("t c, t c -> t c", {zigzag, even}),
              AllOf(HasSubstr("'y' is sharded (dim 0, even) on context"), HasSubstr("zigzag"),
                    HasSubstr("'x'"), HasSubstr("the same pieces")));
  EXPECT_THAT(refusal("t c, t c -> t c", {zigzag, value("y", {8, 6}, {{c, replicated()}})}),
              HasSubstr("the same pieces"));
  EXPECT_THAT(refusal(kLinear, {zigzag, value("w", {4, 6}, {{c, partial()}})}),
              AllOf(HasSubstr("'w' is partial on context"), HasSubstr("expected replicated")));
}

/// Pieces of 4 sequences, and pieces that lie within other repeats: the rows are not the same.
TEST_F(Derive, ALabelRepeatsAlikeEverywhere) {
  const auto tokens = [&](const char* name, int factor, int64_t repeats) {
    return value(name, {16, 4}, {{t, sharded(0, {}, factor, repeats)}});
  };
  EXPECT_THAT(refusal("~t c + ~t c -> t c", {tokens("x", 0, 1), tokens("y", 1, 4)}),
              AllOf(HasSubstr("operation: label t is split"),
                    HasSubstr("(tensor even, factor 1, repeated 4 times) in 'y'"),
                    HasSubstr("(tensor even) in 'x'")));
  EXPECT_THAT(refusal("~t c + ~t c -> t c", {tokens("x", 1, 2), tokens("y", 1, 4)}),
              AllOf(HasSubstr("repeated 2 times"), HasSubstr("repeated 4 times")));
  const TypedOperand targets =
      constant(value("targets", {16}, {{t, sharded(0, {.kind = PieceKind::even})}}));
  EXPECT_THAT(refusal("t c!, t -> t", {tokens("x", 1, 4), targets}),
              AllOf(HasSubstr("'x'"), HasSubstr("'targets'")));
  // Of two operands that have the dim whole, also if the first has it as a factor.
  EXPECT_THAT(refusal("(b t), t, t -> (b t)", {value("x", {64}, {{t, sharded(0, {}, 1, 4)}}),
                                               value("y", {16}, {{t, sharded(0)}}),
                                               value("z", {16}, {{t, sharded(0, {}, 1, 2)}})}),
              AllOf(HasSubstr("'y'"), HasSubstr("'z'")));
  EXPECT_EQ(text("~t c + ~t c -> t c", {tokens("x", 1, 4), tokens("y", 1, 4)}),
            "tensor: sharded (dim 0, even, factor 1, repeated 4 times)");
}

TEST_F(Derive, WholeDimsAreNotSplit) {
  EXPECT_THAT(refusal("t c!, c! -> t c!",
                      {value("x", {8, 6}, {{t, sharded(1)}}), value("w", {6}, {{t, sharded(0)}})}),
              AllOf(HasSubstr("'x'"), HasSubstr("dim 1 (c) must be whole")));
}

TEST_F(Derive, OneLabelIsSplitOnAnAxis) {
  EXPECT_THAT(refusal(kLinear, {value("x", {8, 6}, {{t, sharded(0)}}),
                                value("w", {4, 6}, {{t, sharded(0)}})}),
              AllOf(HasSubstr("two labels are split on tensor"), HasSubstr("t of 'x'"),
                    HasSubstr("o of 'w'")));
}

TEST_F(Derive, SumsPassThroughWhatIsLinear) {
  const TypedOperand sum = value("y", {8, 6}, {{t, partial()}});
  const TypedOperand other = value("z", {8, 6}, {{t, partial()}});
  const TypedOperand same = value("r", {8, 6}, {{t, replicated()}});
  EXPECT_EQ(text("~t c + ~t c -> t c", {sum, other}), "tensor: partial");
  EXPECT_EQ(text("~t c, ~t c -> t c", {sum, same}), "tensor: partial");
  EXPECT_THAT(refusal("t c -> t c", {sum}),
              AllOf(HasSubstr("'y' is partial on tensor"), HasSubstr("not linear")));
  EXPECT_THAT(refusal("~t c, ~t c -> t c", {sum, other}), HasSubstr("multiplied by 'y'"));
  EXPECT_THAT(refusal("~t c + ~t c -> t c", {sum, same}),
              AllOf(HasSubstr("'r' is replicated on tensor"), HasSubstr("added to 'y'")));
}

TEST_F(Derive, ABiasIsNotAddedOncePerRank) {
  constexpr std::string_view kWithBias = "~t i, ~o i + ~o -> t o";
  const TypedOperand features = value("x", {8, 6}, {{t, sharded(1)}});
  const TypedOperand weight = value("w", {4, 6}, {{t, sharded(1)}});
  EXPECT_THAT(refusal(kWithBias, {features, weight, value("b", {4}, {{t, replicated()}})}),
              AllOf(HasSubstr("the sum over i is partial on tensor"), HasSubstr("'b' lacks i")));
}

TEST_F(Derive, ASplitVocabularyIsASum) {
  constexpr std::string_view kEmbedding = "~v c, t -> t c";
  const TypedOperand table = value("table", {10, 6}, {{t, sharded(0)}, {d, replicated()}});
  const TypedOperand ids = constant(value("ids", {8}, {{d, sharded(0)}}));
  EXPECT_EQ(text(kEmbedding, {table, ids}), "tensor: partial, data: sharded (dim 0, even)");
}

TEST_F(Derive, AttentionSplitsByHeadsAndQueries) {
  constexpr std::string_view kAttention =
      "(b s) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d!); h=g";
  const TypeOnAxis heads = sharded(1);
  const auto positions = [](PieceKind kind) { return sharded(0, {.kind = kind}, 1, 2); };
  const TypedOperand q =
      value("q", {16, 8}, {{d, sharded(0)}, {c, positions(PieceKind::zigzag)}, {t, heads}});
  const TypedOperand k = value("k", {16, 4}, {{d, sharded(0)}, {c, replicated()}, {t, heads}});
  EXPECT_EQ(text(kAttention, {q, k, k}),
            "tensor: sharded (dim 1, even), context: sharded (dim 0, zigzag, factor 1, repeated 2 "
            "times), data: sharded (dim 0, even)");
  EXPECT_EQ(derive(kAttention, {q, k, k})[0].on(c).repeats, 2);
  const TypedOperand split_keys =
      value("k", {16, 4}, {{d, sharded(0)}, {c, positions(PieceKind::zigzag)}, {t, heads}});
  EXPECT_THAT(refusal(kAttention, {q, split_keys, k}),
              AllOf(HasSubstr("'k'"), HasSubstr("(z) must be whole")));
  const TypedOperand all_heads =
      value("k", {16, 4}, {{d, sharded(0)}, {c, replicated()}, {t, replicated()}});
  EXPECT_THAT(refusal(kAttention, {q, all_heads, all_heads}), HasSubstr("the same pieces"));
}

TEST_F(Derive, OperandsAgreeOnTheOrderOfAxes) {
  const TypedOperand one = value("x", {8, 6}, {{d, sharded(0)}, {t, sharded(0)}});
  const TypedOperand other = value("y", {8, 6}, {{t, sharded(0)}, {d, sharded(0)}});
  EXPECT_THAT(
      refusal("t c, t c -> t c", {one, other}),
      AllOf(HasSubstr("label t is split in the order"), HasSubstr("'x'"), HasSubstr("'y'")));
  EXPECT_THAT(derive("t c, t c -> t c", {other, other})[0].order(0), ElementsAre(t, d));
}

TEST_F(Derive, AProductOfDimsKeepsTheSplitsOfItsOutermost) {
  const TypedOperand tokens = value("x", {8, 6}, {{d, sharded(0)}, {t, sharded(0, {}, 1, 2)}});
  const Distribution rows = derive("~n c -> (n* k) c", {tokens})[0];
  EXPECT_THAT(rows.order(0), ElementsAre(d, t));
  EXPECT_EQ(rows.on(t), sharded(0, {}, 1, 2));
  const Distribution back =
      derive("~(n* k) c -> n k c", {{"rows", {{16, 6}, DType::f64, rows}, true}})[0];
  EXPECT_EQ(back.on(t), sharded(0, {}, 1, 2));
  EXPECT_THAT(back.order(0), ElementsAre(d, t));
}

TEST_F(Derive, FlattenedDimsKeepTheirFactors) {
  const TypedOperand hidden =
      value("x", {4, 8, 6}, {{d, sharded(0)}, {c, sharded(1, {.kind = PieceKind::zigzag})}});
  const Distribution tokens = derive("~b s c -> (b s) c", {hidden})[0];
  EXPECT_EQ(tokens.on(c), sharded(0, {.kind = PieceKind::zigzag}, 1, 4));
  EXPECT_EQ(tokens.on(d), sharded(0));
}

/// Context halves the positions of two sequences, and the tokens become a factor of a larger dim.
TEST_F(Derive, ASplitInsideAFactorIsRepeatedByTheOthers) {
  const Distribution grouped =
      derive("~g n c -> (g n) c", {value("x", {3, 8, 6}, {{c, sharded(1, {}, 1, 2)}})})[0];
  const Distribution copies =
      derive("~n k c -> (n* k) c", {value("x", {8, 3, 6}, {{c, sharded(0, {}, 1, 2)}})})[0];
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int64_t first = mesh.coordinate(rank, c) * 4;
    std::vector<int64_t> of_grouped;
    for (int64_t sequence = 0; sequence < 3 * 2; ++sequence) {
      for (int64_t i = 0; i < 4; ++i) of_grouped.push_back(sequence * 8 + first + i);
    }
    EXPECT_EQ(piece_of_dim(mesh, grouped, 0, 48, rank), of_grouped);
    std::vector<int64_t> of_copies;
    for (int64_t sequence = 0; sequence < 2; ++sequence) {
      for (int64_t i = 0; i < 4 * 3; ++i) of_copies.push_back((sequence * 8 + first) * 3 + i);
    }
    EXPECT_EQ(piece_of_dim(mesh, copies, 0, 48, rank), of_copies);
  }
  const Distribution tokens =
      derive("~(n* k) c -> n k c", {{"rows", {{24, 6}, DType::f64, copies}, true}})[0];
  EXPECT_EQ(tokens.on(c).repeats, 2);
}

TEST_F(Derive, DualsOfSumsUseTheShapeAlone) {
  const TypedOperand probabilities = value("p", {8, 4}, {{t, sharded(0)}});
  EXPECT_EQ(text("~, ?n E -> n E", {value("g", {}, {{t, replicated()}}), probabilities}),
            "tensor: sharded (dim 0, even)");
  EXPECT_EQ(text("~E, ?n -> E",
                 {value("g", {4}, {{t, replicated()}}), value("p", {8}, {{t, sharded(0)}})}),
            "tensor: replicated");
}

TEST_F(Derive, ViewsDoNotMix) {
  const TypedOperand rows =
      value("rows", {8, 6},
            {{e, sharded(0)}, {x, varying(0, {.kind = PieceKind::exchange, .identity = 1}, 1)}},
            MeshView::expert);
  EXPECT_THAT(refusal("t c, t c -> t c", {rows, value("x", {8, 6}, {{t, sharded(0)}})}),
              AllOf(HasSubstr("'rows' is of the expert view"), HasSubstr("'x' of the dense view")));
}

TEST_F(Derive, RowsOfExpertsAndTheirWeightsAgree) {
  constexpr std::string_view kGrouped = "~(E r) i, ~E o i -> (E r) o";
  const auto rows_of = [&](int exchange) {
    return value(
        "rows", {12, 6},
        {{e, sharded(0)}, {x, varying(0, {.kind = PieceKind::exchange, .identity = exchange}, 1)}},
        MeshView::expert);
  };
  const TypedOperand weight =
      value("w", {2, 5, 6}, {{e, sharded(0)}, {x, replicated()}}, MeshView::expert);
  EXPECT_EQ(text(kGrouped, {rows_of(1), weight}),
            "expert: sharded (dim 0, even), expert_data: varying (dim 0, exchange 1, factor 1)");
  EXPECT_EQ(text("~(E r) o, (E r) i -> E o i", {rows_of(1), rows_of(1)}),
            "expert: sharded (dim 0, even), expert_data: partial");
  EXPECT_THAT(refusal("(E r) i, (E r) i -> (E r) i", {rows_of(1), rows_of(2)}),
              AllOf(HasSubstr("exchange 2"), HasSubstr("the same pieces")));
  EXPECT_THAT(
      refusal(kGrouped, {rows_of(1), value("w", {2, 5, 6}, {{e, sharded(0)}}, MeshView::expert)}),
      HasSubstr("'w' is invariant on expert_data"));
}

TEST_F(Derive, ARuleByHandAnswersForItsAxis) {
  const HandRule loss =
      [&](Axis, std::span<const TypeOnAxis> inputs) -> std::optional<std::vector<TypeOnAxis>> {
    if (!inputs[0].split() || inputs[0].dim != 1) return std::nullopt;
    return std::vector<TypeOnAxis>{invariant()};
  };
  const TypedOperand logits = value("logits", {8, 10}, {{t, sharded(1)}, {d, sharded(0)}});
  const TypedOperand targets = constant(value("targets", {8}, {{d, sharded(0)}}));
  EXPECT_EQ(derive("n v!, n -> n", {logits, targets}, loss)[0].text(mesh),
            "data: sharded (dim 0, even)");
}

/// On its axis the rule sees to what operands have in common, and on all others labels do.
TEST_F(Derive, ARuleByHandLeavesOtherAxesToTheLabels) {
  const HandRule joins_columns =
      [&](Axis axis, std::span<const TypeOnAxis>) -> std::optional<std::vector<TypeOnAxis>> {
    if (axis != t) return std::nullopt;
    return std::vector<TypeOnAxis>{replicated()};
  };
  const auto order_of = [&](Axis outer, Axis inner) {
    return value("x", {8, 6}, {{outer, sharded(0)}, {inner, sharded(0)}});
  };
  const std::string_view labels = "n c, n c -> n c";
  EXPECT_THROW(derive(labels, {order_of(c, d), order_of(d, c)}, joins_columns), DistributionError);
  EXPECT_EQ(
      derive(labels, {order_of(c, t), value("y", {8, 6}, {{c, sharded(0)}})}, joins_columns)[0]
          .text(mesh),
      "tensor: replicated, context: sharded (dim 0, even)");
  const HandRule refuses =
      [](Axis, std::span<const TypeOnAxis>) -> std::optional<std::vector<TypeOnAxis>> {
    throw DistributionError("operation: no");
  };
  try {
    derive(labels, {order_of(c, d), order_of(c, d)}, refuses);
    ADD_FAILURE() << "the rule by hand was not asked";
  } catch (const DistributionError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("on tensor, 'x' is invariant"), HasSubstr(": operation: no")));
  }
}

TEST_F(Derive, LabelsFitTheShapes) {
  EXPECT_THROW(derive(kLinear, {value("x", {8}), value("w", {4, 6})}), InternalError);
  EXPECT_THROW(derive(kLinear, {value("x", {8, 6})}), InternalError);
}

/// On a mesh of one rank the same programs are refused.
TEST(DeriveOnOneRank, RefusesTheSame) {
  const Mesh mesh;
  const TypedOperand tokens{"x",
                            {{8, 6}, DType::f64, Distribution().with(mesh.data()[0], sharded(0))}};
  const TypedOperand weight{"w", {{4, 6}, DType::f64, {}}};
  EXPECT_THROW(derive_distributions(mesh, "linear", parse_labels("~t i, ~o i -> t o"),
                                    std::vector{tokens, weight}),
               DistributionError);
}

}  // namespace
}  // namespace tessera
