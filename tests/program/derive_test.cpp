#include "program/derive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/piece_indices.h"
#include "program/conversion.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Derive : public ::testing::Test {
 protected:
  Derive()
      : mesh({.tensor = 2, .context = 2, .data = {2}, .expert = 4}),
        t(mesh.tensor()),
        c(mesh.context()),
        d(mesh.data()[0]),
        e(mesh.expert()),
        x(mesh.expert_data()) {}

  using Types = std::vector<std::pair<Axis, TypeOnAxis>>;

  TypedOperand value(std::string name, const Shape& shape, const Types& types = {},
                     MeshView view = MeshView::dense) const {
    Distribution distribution(view);
    for (const auto& [axis, type] : types) distribution = distribution.with(axis, type);
    return {std::move(name), {shape, DType::f64, distribution}, true};
  }
  static TypedOperand constant(TypedOperand operand) {
    operand.differentiable = false;
    return operand;
  }

  std::vector<Distribution> derive(std::string_view labels, std::vector<TypedOperand> inputs,
                                   const HandRule& by_hand = {}) const {
    return derive_distributions(mesh, "operation", parse_labels(labels), inputs, by_hand);
  }
  std::string text(std::string_view labels, std::vector<TypedOperand> inputs) const {
    std::string result;
    for (const Distribution& output : derive(labels, std::move(inputs))) {
      result += (result.empty() ? "" : " | ") + output.text(mesh);
    }
    return result;
  }
  std::string refusal(std::string_view labels, std::vector<TypedOperand> inputs) const {
    try {
      derive(labels, std::move(inputs));
    } catch (const DistributionError& error) {
      return error.what();
    }
    return "accepted";
  }

  Mesh mesh;
  Axis t, c, d, e, x;
};

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

/// The sequences are split after the positions, and then both are dims of an operation.
TEST_F(Derive, ASplitOfSequencesInsideOneOfPositionsKeepsItsElements) {
  const TypedOperand tokens = value("x", {8, 6}, {{c, sharded(0, {}, 1, 4)}, {d, sharded(0)}});
  const Distribution before = tokens.spec.distribution;
  const Distribution after = derive("~(b s) c -> (b s) c", {tokens})[0];
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(piece_of_dim(mesh, after, 0, 32, rank), piece_of_dim(mesh, before, 0, 32, rank));
  }
}

/// The same with sequences in uneven parts, three and one of four. Their sizes count positions as
/// well, of which other ranks have the rest.
TEST_F(Derive, AnUnevenSplitOfSequencesInsideOneOfPositionsIsRefused) {
  const TypedOperand tokens = value(
      "x", {3 * 4, 6},
      {{c, sharded(0, {}, 1, 4)}, {d, sharded(0, {.kind = PieceKind::uneven, .sizes = {12, 4}})}});
  EXPECT_THAT(refusal("~(b s) c -> (b s) c", {tokens}),
              AllOf(HasSubstr("'x' is sharded (dim 0, uneven 12 + 4) on data"),
                    HasSubstr("of no operand")));
}

/// Where operands say how many tokens the sizes stand for, each rank keeps its tokens: 12 and 4
/// sequences of two positions, of which every rank has one.
TEST_F(Derive, AnUnevenSplitOfSequencesInsideOneOfPositionsKeepsItsElements) {
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
TEST_F(Derive, PiecesDoNotCutElementsThatHaveOthersInside) {
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
TEST_F(Derive, UnevenSizesAreThoseOfTheirDim) {
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

class Convert : public Derive {
 protected:
  std::string refusal_of(const TypedOperand& operand, const Conversion& conversion) const {
    try {
      converted(mesh, operand, conversion);
    } catch (const DistributionError& error) {
      return error.what();
    }
    return "accepted";
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
    try {
      crossed(mesh, operand, view);
    } catch (const DistributionError& error) {
      return error.what();
    }
    return "accepted";
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
