#include "ops/collective/convert.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/collective/conversion_run.h"
#include "support/error_of.h"
#include "support/refusal_of.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Convert, KeepsTheLogicalValueAndItsGradient) {
  for (const int ranks : {2, 3, 4}) {
    const Mesh mesh({.tensor = ranks});
    for (const bool computed : {false, true}) {
      const size_t splits = computed ? kFew : kAll;
      ConversionRun(mesh, all_cases(mesh, {}, mesh.tensor(), splits), {.computed = computed})
          .check();
    }
  }
}

TEST(Convert, JoinsAndSplitsInsideOtherAxes) {
  const Mesh mesh({.tensor = 3, .data = {2}});
  const Axis d = mesh.data()[0];
  const Distribution nothing;
  for (const TypeOnAxis& other :
       {sharded(0), sharded(1, {.kind = PieceKind::zigzag}), replicated(), partial()}) {
    const Distribution others = nothing.with(d, other);
    ConversionRun(mesh, all_cases(mesh, others, mesh.tensor(), kFew), {}).check();
  }
}

TEST(Convert, WorksOnEveryAxisOfBothViews) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}, .expert = 2});
  for (const MeshView view : {MeshView::dense, MeshView::expert}) {
    for (const Axis axis : mesh.axes_of(view)) {
      ASSERT_GT(mesh.size(axis), 1) << mesh.name(axis);
      std::vector<ConversionCase> cases;
      for (const ConversionCase& of : all_cases(mesh, Distribution(view), axis, 1)) {
        const bool first = std::ranges::none_of(cases, [&](const ConversionCase& other) {
          return other.conversion.from == of.conversion.from &&
                 other.conversion.to.placement == of.conversion.to.placement;
        });
        if (first) cases.push_back(of);
      }
      EXPECT_EQ(cases.size(), conversion_rules().size());
      ConversionRun(mesh, cases, {}).check();
    }
  }
}

TEST(Convert, TakesAllTypesOfElements) {
  const Mesh mesh({.tensor = 3});
  for (const DType dtype : {DType::bf16, DType::f32, DType::i32}) {
    ConversionRun(mesh, all_cases(mesh, {}, mesh.tensor(), kFew), {.dtype = dtype}).check();
  }
}

/// What the nodes of a rank's program cost on the wire, over one axis.
double wire_bytes(const Program& program, Axis axis) {
  double bytes = 0;
  for (const Node& node : program.nodes()) {
    const Cost cost = node.operation->cost(program.specs(node.inputs), program.specs(node.outputs));
    for (const WireBytes& wire : cost.wire) {
      EXPECT_EQ(wire.axes, std::vector{axis});
      bytes += wire.bytes;
    }
  }
  return bytes;
}

double received_by_all(const ConversionRun& run, Axis axis) {
  double sent = 0;
  for (int rank = 0; rank < run.run().mesh().ranks(); ++rank) {
    sent += static_cast<double>(run.run().received_bytes(rank, std::vector{axis}));
  }
  return sent;
}

/// By hand, to be compared with what is sent.
bool communicates(Movement movement) {
  switch (movement) {
    case Movement::all_gather:
    case Movement::reduce_scatter:
    case Movement::all_reduce:
    case Movement::all_to_all:
      return true;
    case Movement::nothing:
    case Movement::own_piece:
    case Movement::zeros_around:
    case Movement::one_keeps:
      return false;
  }
  throw InternalError("unknown Movement");
}

TEST(Convert, SendsWhatItCosts) {
  for (const int ranks : {2, 3, 4}) {
    const Mesh mesh({.tensor = ranks});
    const Axis axis = mesh.tensor();
    for (const ConversionRule& rule : conversion_rules()) {
      std::vector<ConversionCase> cases = all_cases(mesh, {}, axis, kFew);
      std::erase_if(cases, [&](const ConversionCase& of) {
        return of.conversion.from != rule.from || of.conversion.to.placement != rule.to;
      });
      const ConversionRun run(mesh, cases, {.dtype = DType::f32});
      const std::string what = text_of(mesh, cases[0]);
      const double sent = received_by_all(run, axis);
      double cost = 0;
      for (int rank = 0; rank < ranks; ++rank) cost += wire_bytes(run.run().program(rank), axis);
      EXPECT_NEAR(cost, sent, 1e-6 * sent) << what;
      const Movement back = movement(dual(cases[0].conversion, cases[0].before.on(axis)));
      EXPECT_EQ(sent > 0, communicates(rule.movement) || communicates(back)) << what;
    }
  }
}

TEST(Convert, SendsWhatRingsSend) {
  const Mesh mesh({.tensor = 4});
  const Axis axis = mesh.tensor();
  const Distribution split = Distribution().with(axis, sharded(0));
  const Distribution sum = Distribution().with(axis, partial());
  const double whole = 4.0 * 48 * 48;  // bytes
  const auto sent = [&](const Distribution& before, const TypeOnAxis& to) {
    const ConversionCase of{before, {axis, before.on(axis).placement, to}};
    return received_by_all(ConversionRun(mesh, {of}, {.dtype = DType::f32, .gradients = false}),
                           axis) /
           4;
  };
  EXPECT_EQ(sent(split, replicated()), whole * 3 / 4);
  EXPECT_EQ(sent(sum, sharded(1)), whole * 3 / 4);
  EXPECT_EQ(sent(sum, invariant()), whole * 2 * 3 / 4);
  EXPECT_EQ(sent(split, sharded(1)), whole / 4 * 3 / 4);
  EXPECT_EQ(sent(split, partial()), 0);
}

TEST(Convert, SendsEqualBlocksAsSuch) {
  const Mesh mesh({.tensor = 4});
  const std::vector<Axis> axes{mesh.tensor()};
  const auto calls = [&](const TypeOnAxis& to, Collective kind) {
    const ConversionCase of{Distribution().with(axes[0], sharded(0)),
                            {axes[0], Placement::sharded, to}};
    return ConversionRun(mesh, {of}, {.gradients = false}).run().traffic(0, axes, kind).calls;
  };
  const TypeOnAxis uneven = sharded(1, {PieceKind::uneven, {12, 12, 11, 13}});
  EXPECT_EQ(calls(sharded(1), Collective::all_to_all), 1);
  EXPECT_EQ(calls(sharded(1), Collective::all_to_all_rows), 0);
  EXPECT_EQ(calls(uneven, Collective::all_to_all_rows), 1);
}

TEST(Convert, HasLabelsOfAllDims) {
  const Mesh mesh({.tensor = 2});
  const ConversionRun run(mesh, all_cases(mesh, {}, mesh.tensor(), kFew), {});
  const Program& program = run.run().program();
  for (const Node& node : program.nodes()) {
    const Labels labels = parse_labels(node.operation->labels(program.specs(node.inputs)));
    ASSERT_EQ(labels.inputs.size(), node.inputs.size());
    EXPECT_EQ(labels.inputs[0].dims.size(), 2U) << node.operation->name();
    EXPECT_EQ(labels.outputs[0].dims.size(), 2U) << node.operation->name();
  }
}

/// The error of a conversion of a value 'x' of this shape.
template <typename Failure>
std::string refusal(const Mesh& mesh, const Distribution& before, const Shape& shape,
                    const TypeOnAxis& to) {
  Program program(mesh);
  Builder builder(program);
  const Value x = builder.input("x", {shape, DType::f32, before});
  try {
    convert(builder, x, mesh.tensor(), before.on(mesh.tensor()).placement, to);
  } catch (const Failure& error) {
    EXPECT_TRUE(program.nodes().empty());
    return error.what();
  }
  return "accepted";
}

TEST(Convert, RefusesPiecesThatDoNotDivide) {
  const Mesh mesh({.tensor = 4});
  const Axis axis = mesh.tensor();
  const Distribution whole = Distribution().with(axis, replicated());
  const auto from = [&](const TypeOnAxis& type) { return Distribution().with(axis, type); };
  const auto names = [](const char* numbers) {
    return AllOf(HasSubstr("over 4 ranks of tensor: 'x' ["), HasSubstr(numbers));
  };
  EXPECT_THAT(refusal<Error>(mesh, whole, {6, 2}, sharded(0)),
              AllOf(names("6 elements do not divide into 4 even pieces"),
                    HasSubstr("replicated -> sharded (dim 0, even)")));
  EXPECT_THAT(refusal<Error>(mesh, whole, {12, 2}, sharded(0, {.kind = PieceKind::zigzag})),
              names("12 elements do not divide into 8 zigzag pieces"));
  EXPECT_THAT(refusal<Error>(mesh, whole, {12, 2}, sharded(0, {PieceKind::uneven, {1, 2, 3, 5}})),
              names("12 elements"));
  EXPECT_THAT(refusal<Error>(mesh, whole, {8, 2}, sharded(0, {}, 1, 3)),
              names("8 elements of dim 0 do not divide into 3 repeats"));
  EXPECT_THAT(refusal<Error>(mesh, from(sharded(0, {PieceKind::uneven, {4, 2, 3, 5}})), {3, 2},
                             replicated()),
              names("its piece has 3 elements of dim 0; expected 4"));
  EXPECT_THAT(refusal<Error>(mesh, from(sharded(1)), {3, 2}, sharded(0)),
              names("3 elements do not divide into 4 even pieces"));
  EXPECT_THAT(refusal<DistributionError>(mesh, whole, {8, 2}, sharded(0, {PieceKind::uneven, {8}})),
              names("1 uneven pieces for 4 ranks"));
  EXPECT_THAT(refusal<DistributionError>(mesh, whole, {8, 2}, sharded(2)), names("no dim 2"));
  EXPECT_EQ(refusal<Error>(mesh, whole, {8, 2}, sharded(0)), "accepted");
}

TEST(Convert, RefusesTypesThatDoNotFit) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const Axis t = mesh.tensor(), d = mesh.data()[0];
  EXPECT_THAT(
      refusal<DistributionError>(mesh, Distribution().with(t, sharded(0)).with(d, sharded(0)),
                                 {4, 2}, replicated()),
      HasSubstr("dim 0 is split over data inside it; join that first"));
  EXPECT_THAT(refusal<DistributionError>(mesh, Distribution(), {4, 2}, invariant()),
              HasSubstr("there is no such conversion"));
  Program program(mesh);
  Builder builder(program);
  const Value rows = builder.input(
      "rows", {{4, 2}, DType::f32, Distribution().with(t, varying(0, {PieceKind::exchange}))});
  builder.set_rows(rows, {.expected = 2, .key = "bound"});
  EXPECT_THROW(convert(builder, rows, t, Placement::varying, replicated()), DistributionError);
}

/// The rows of exchange 0, gathered, added up and scattered as those of exchange 1, would be
/// combined by another plan. The gradient of a gather is of the rows that were gathered.
TEST(Convert, DoesNotGiveASumTheNameOfAnExchange) {
  const Mesh mesh({.tensor = 2});
  const Axis t = mesh.tensor();
  const auto rows_of = [](int identity) {
    return varying(0, {.kind = PieceKind::exchange, .identity = identity});
  };
  Program program(mesh);
  Builder builder(program);
  const Value x = builder.input("x", {{4, 2}, DType::f64, Distribution().with(t, rows_of(0))});
  const Value all = convert(builder, x, t, Placement::varying, replicated());
  const Value sum = convert(builder, all, t, Placement::replicated, partial());
  builder.name(sum, "sum");
  for (const int identity : {0, 1}) {
    EXPECT_THAT(
        refusal_of([&] { convert(builder, sum, t, Placement::partial, rows_of(identity)); }),
        AllOf(HasSubstr("partial -> varying on tensor: 'sum' would become varying (dim 0, "),
              HasSubstr(fmt::format("exchange {}", identity)), HasSubstr("expected tokens")));
  }
  const Value seed = builder.input("seed", {{8, 2}, DType::f64, Distribution().with(t, partial())});
  const Value of_x =
      differentiate(builder, std::vector{Seed{all, seed, SeedKind::boundary}}, std::vector{x})[0];
  EXPECT_EQ(builder.spec(of_x).distribution.on(t), rows_of(0));
}

/// Ranks whose shapes differ exchange nothing: as many elements are not the same elements.
TEST(Convert, RefusesToExchangePiecesOfOtherWholes) {
  const Mesh mesh({.tensor = 2});
  const Axis t = mesh.tensor();
  const auto exchanged = [&](const Shape& first, const TypeOnAxis& from, const Shape& second,
                             const TypeOnAxis& other) {
    const auto shape = [&](int rank) { return rank == 0 ? first : second; };
    const auto write = [&](Builder& builder) {
      const int rank = builder.program().rank();
      const TypeOnAxis& type = rank == 0 ? from : other;
      const Value x = builder.input("x", {shape(rank), DType::f64, Distribution().with(t, type)});
      builder.name(convert(builder, x, t, Placement::sharded, sharded(1)), "y");
    };
    return error_of([&] {
      const MeshRun run(mesh, write, [&](int rank, const ValueInfo&) {
        return tensor_of(shape(rank), DType::f64, small_numbers(16, "x"));
      });
    });
  };
  EXPECT_THAT(
      exchanged({2, 8}, sharded(0), {4, 4}, sharded(0)),
      AllOf(HasSubstr("all_to_all 'y' of f64 [4, 8]"), HasSubstr("all_to_all 'y' of f64 [8, 4]")));
  EXPECT_THAT(exchanged({4, 4}, sharded(0), {4, 4}, sharded(0, {.kind = PieceKind::zigzag})),
              AllOf(HasSubstr("in pieces"), HasSubstr("to pieces")));
}

/// All ranks meet in one order, however a program names the axes.
TEST(TakeSum, TakesAxesInAnyOrder) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const Axis t = mesh.tensor(), d = mesh.data()[0];
  const auto write = [&](Builder& builder) {
    const Distribution sums = Distribution().with(t, partial()).with(d, partial());
    const Value x = builder.input("x", {{2}, DType::f64, sums});
    const std::vector<std::vector<Axis>> orders{{t, d}, {d, t}};
    for (const std::vector<Axis>& axes : orders) {
      const Value sum = take_sum(builder, scale(builder, x, 1), axes);
      builder.name(sum, fmt::format("sum{}", axes[0].index));
      builder.output(sum);
    }
  };
  const Tensor x = tensor_of({2}, DType::f64, std::vector{1.0, 2.0});
  const MeshRun run(mesh, write, give_parts(mesh, {{"x", x}}));
  for (const Axis first : {t, d}) {
    const std::string name = fmt::format("sum{}", first.index);
    EXPECT_EQ(numbers_of(run.whole(name)), (std::vector{1.0, 2.0}));
  }
}

/// Where a sum of all ranks is asked for, pieces or copies for own use are another number.
TEST(AxesOfSum, AreThoseOfAddendsBesideWhatIsExpected) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const Axis t = mesh.tensor(), d = mesh.data()[0];
  Program program(mesh);
  Builder builder(program);
  const auto value = [&](const TypeOnAxis& type) {
    return builder.input("x", {{4}, DType::f64, Distribution().with(t, partial()).with(d, type)});
  };
  EXPECT_EQ(axes_of_sum(builder, value(invariant()), {Placement::invariant}), std::vector{t});
  EXPECT_EQ(axes_of_sum(builder, value(partial()), {Placement::invariant}), (std::vector{t, d}));
  EXPECT_EQ(axes_of_sum(builder, value(sharded(0)), {Placement::invariant, Placement::sharded}),
            std::vector{t});
  for (const TypeOnAxis& type :
       {sharded(0), replicated(), varying(0, {.kind = PieceKind::tokens})}) {
    EXPECT_THAT(refusal_of([&] { axes_of_sum(builder, value(type), {Placement::invariant}); }),
                AllOf(HasSubstr("the sum of 'x', which is " + type.text() + " on data"),
                      HasSubstr("expected partial or invariant")));
  }
}

TEST(Convert, MovesNothingWhereAllStays) {
  const Mesh mesh({.tensor = 4});
  Program program(mesh);
  Builder builder(program);
  const Value x =
      builder.input("x", {{4, 2}, DType::f32, Distribution().with(mesh.tensor(), sharded(0))});
  const Value same =
      convert(builder, x, mesh.tensor(), Placement::sharded, sharded(0, {.kind = PieceKind::flat}));
  EXPECT_EQ(program.base(same), x);
  EXPECT_TRUE(segment_nodes(program, Segment::whole).empty());
}

}  // namespace
}  // namespace tessera::testing
