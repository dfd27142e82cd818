#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "engine/executor.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "program/view.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Shape tokens_shape{6, 4};

/// Which steps are left out, as one who forgets them would.
struct Mistakes {
  bool norm_weight_is_not_retyped = false;
  bool nothing_is_gathered = false;
  bool sum_is_not_taken = false;
  bool sum_is_gathered = false;
};

/// A layer of a model with tensor and sequence parallelism, as it is written on every mesh; here on
/// one of a single rank, where its conversions move nothing.
///   y = x + down(up(gather(norm(x))))
struct Layer {
  explicit Layer(const Mistakes& mistakes = {}, bool typed = true) : program(Mesh()) {
    const Mesh& mesh = program.mesh();
    t = mesh.tensor();
    d = mesh.data()[0];
    Builder builder(program);
    Distribution tokens;
    if (typed) tokens = tokens.with(d, sharded(0)).with(t, positions());
    x = builder.input("x", {tokens_shape, DType::f64, tokens});
    norm_weight = builder.parameter("norm", {{4}, DType::f64, {}});
    up = builder.parameter("up", {{8, 4}, DType::f64, split(typed, 0)});
    down = builder.parameter("down", {{4, 8}, DType::f64, split(typed, 1)});
    const Value own = mistakes.norm_weight_is_not_retyped || !typed
                          ? norm_weight
                          : use_like(builder, norm_weight, x);
    Value h = norm(builder, x, own, {.kind = NormKind::rms, .epsilon = 1e-5}).output;
    if (typed && !mistakes.nothing_is_gathered) {
      h = convert(builder, h, t, Placement::sharded, replicated());
    }
    const std::vector<Axis> over_data{d};
    const auto weight = [&](Value value) { return typed ? use(builder, value, over_data) : value; };
    h = linear(builder, clamp(builder, linear(builder, h, weight(up)), 0.5), weight(down));
    if (mistakes.sum_is_gathered) h = convert(builder, h, t, Placement::sharded, replicated());
    if (typed && !mistakes.sum_is_not_taken) {
      h = convert(builder, h, t, Placement::partial, positions());
    }
    y = add(builder, std::vector{x, h}, DType::f64);
    const Value seed = builder.input("seed", {tokens_shape, DType::f64, tokens});
    builder.output(y);
    of_x = differentiate(builder, std::vector{Seed{y, seed}}, std::vector{x})[0];
    builder.output(of_x);
  }

  static TypeOnAxis positions() { return sharded(0, {}, 1, 2); }
  Distribution split(bool typed, int dim) const {
    return typed ? Distribution().with(t, sharded(dim)) : Distribution();
  }

  std::vector<std::vector<double>> results() {
    Runtime runtime(host_target(1));
    constexpr Action kPasses[] = {{.segment = Segment::forward}, {.segment = Segment::backward}};
    Executor executor(std::vector<const Program*>{&program}, kPasses, runtime);
    double next = 0.3;
    const auto fill = [&](std::string_view name) {
      for (double& element : executor.tensor(program.find(name)).values<double>()) {
        next = next * 3.7 * (1 - next);  // some numbers in (0, 1)
        element = next - 0.5;
      }
    };
    for (const char* name : {"x", "seed", "norm", "up", "down"}) fill(name);
    for (const char* name : {"gradient:norm", "gradient:up", "gradient:down"}) {
      executor.tensor(program.find(name)).fill_zero();
    }
    for (const Action& action : kPasses) executor.run(action);
    std::vector<std::vector<double>> numbers;
    for (const Value value : {y, of_x, program.find("gradient:norm"), program.find("gradient:up"),
                              program.find("gradient:down")}) {
      const auto values = executor.tensor(value).values<double>();
      numbers.emplace_back(values.begin(), values.end());
    }
    return numbers;
  }

  Program program;
  Axis t, d;
  Value x, norm_weight, up, down, y, of_x;
};

std::string refusal(const Mistakes& mistakes) {
  try {
    const Layer layer(mistakes);
  } catch (const DistributionError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TypedProgram, GradientsLieAsTheDualsOfTheirValues) {
  const Layer layer;
  const Program& program = layer.program;
  const auto text = [&](std::string_view name) {
    return program.spec(program.find(name)).distribution.text(program.mesh());
  };
  EXPECT_EQ(program.spec(layer.y).distribution, program.spec(layer.x).distribution);
  EXPECT_EQ(program.spec(layer.of_x).distribution, program.spec(layer.x).distribution);
  // Each rank adds up what its own tokens say: the sums are taken once, by the update.
  EXPECT_EQ(text("gradient:norm"), "tensor: partial, data: partial");
  EXPECT_EQ(text("gradient:up"), "tensor: sharded (dim 0, even), data: partial");
  EXPECT_EQ(text("gradient:down"), "tensor: sharded (dim 1, even), data: partial");
}

TEST(TypedProgram, ConversionsOnOneRankMoveNothing) {
  Layer typed;
  Layer untyped({}, false);
  EXPECT_EQ(typed.results(), untyped.results());
  size_t runs = 0;
  for (const Node& node : typed.program.nodes()) runs += !node.operation->view(0).has_value();
  EXPECT_EQ(runs, untyped.program.nodes().size());
}

TEST(TypedProgram, MistakesAreRefusedWithTheirNames) {
  EXPECT_THAT(refusal({.norm_weight_is_not_retyped = true}),
              AllOf(HasSubstr("rms_norm: 'norm' is invariant"), HasSubstr("replicated")));
  EXPECT_THAT(refusal({.nothing_is_gathered = true}),
              AllOf(HasSubstr("linear"), HasSubstr("two labels are split on tensor")));
  EXPECT_THAT(refusal({.sum_is_not_taken = true}),
              AllOf(HasSubstr("add"), HasSubstr("on tensor"), HasSubstr("partial")));
  EXPECT_THAT(refusal({.sum_is_gathered = true}),
              AllOf(HasSubstr("sharded -> replicated on tensor"), HasSubstr("is partial")));
  EXPECT_EQ(refusal({}), "accepted");
}

TEST(TypedProgram, AGradientOfAnotherTypeIsRefused) {
  Program program;
  Builder builder(program);
  const Axis d = program.mesh().data()[0];
  const Value x =
      builder.input("x", {tokens_shape, DType::f64, Distribution().with(d, sharded(0))});
  const Value y = scale(builder, x, 2);
  const Value seed = builder.input("seed", {tokens_shape, DType::f64, {}});
  try {
    differentiate(builder, std::vector{Seed{y, seed}}, std::vector{x});
    ADD_FAILURE() << "it was accepted";
  } catch (const DistributionError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("is invariant"),
                                    HasSubstr("expected data: sharded (dim 0, even)")));
  }
}

/// Parts of a unit lie each in their own way; the unit's gradient is partial where theirs are.
TEST(TypedProgram, PartsOfAUnitHaveTheirTypes) {
  Program program(Mesh({.tensor = 2, .data = {2}}));
  Builder builder(program);
  const Axis t = program.mesh().tensor();
  const Axis d = program.mesh().data()[0];
  const Distribution flat = Distribution().with(t, sharded(0, {.kind = PieceKind::flat}));
  const Value unit = builder.parameter("unit", {{64}, DType::f64, flat});
  const Distribution rows = Distribution().with(t, sharded(0));
  const Value matrix = view(builder, unit, 0, {4, 4}, rows);
  const std::vector<Axis> over_data{d};
  const Value gradient = builder.main_gradient(use(builder, matrix, over_data));
  EXPECT_EQ(builder.spec(gradient).distribution, rows.with(d, partial()));
  EXPECT_EQ(builder.spec(program.main_gradient(unit)).distribution, flat.with(d, partial()));
  EXPECT_THROW(view(builder, unit, 16, {4}, Distribution()), DistributionError);
  EXPECT_THROW(view(builder, unit, 16, {4}), DistributionError);  // would be whole
}

}  // namespace
}  // namespace tessera
