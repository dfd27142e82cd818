#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/action.h"
#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/norm/norm.h"
#include "program/view.h"
#include "support/mesh_programs.h"
#include "support/refusal_of.h"
#include "support/run_program.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using testing::give_parts;
using testing::MeshRun;
using testing::numbers_of;
using testing::random_tensor;
using testing::refusal_of;

constexpr int64_t kSequences = 4;
constexpr int64_t kPositions = 4;
const Shape tokens_shape{kSequences * kPositions, 4};

/// Which steps are left out, as one who forgets them would.
struct Mistakes {
  bool norm_weight_is_not_retyped = false;
  bool nothing_is_gathered = false;
  bool sum_is_not_taken = false;
  bool sum_is_gathered = false;
};

/// A layer of a model with tensor and sequence parallelism, as it is written on every mesh.
///   y = x + down(up(gather(norm(x))))
struct Layer {
  explicit Layer(Builder& builder, const Mistakes& mistakes = {}, bool typed = true)
      : mesh(builder.program().mesh()) {
    Distribution tokens;
    if (typed) tokens = tokens.with(d, sharded(0)).with(t, positions());
    const Spec spec{tokens_shape.with_dim(0, tokens_shape[0] / mesh.size(d) / mesh.size(t)),
                    DType::f64, tokens};
    x = builder.input("x", spec);
    norm_weight = builder.parameter("norm", {{4}, DType::f64, {}});
    const int64_t features = 8 / mesh.size(t);
    up = builder.parameter("up", {{features, 4}, DType::f64, split(typed, 0)});
    down = builder.parameter("down", {{4, features}, DType::f64, split(typed, 1)});
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
    const Value seed = builder.input("seed", spec);
    of_x =
        differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x})[0];
  }

  TypeOnAxis positions() const { return sharded(0, {}, 1, kSequences / mesh.size(d)); }
  Distribution split(bool typed, int dim) const {
    return typed ? Distribution().with(t, sharded(dim)) : Distribution();
  }

  Mesh mesh;
  Axis t = mesh.tensor();
  Axis d = mesh.data()[0];
  Value x, norm_weight, up, down, y, of_x;
};

/// Writes the layer, and after it what an update begins with: the sums of the weights' gradients.
void write_layer(Builder& builder, bool typed) {
  const Layer layer(builder, {}, typed);
  const auto keep = [&](Value value, const char* name) {
    builder.name(value, name);
    builder.output(value);
  };
  keep(layer.y, "y");
  keep(layer.of_x, "of_x");
  if (!typed) return;
  const auto sum = [&](Value weight, std::vector<Axis> axes) {
    return take_sum(builder, builder.program().main_gradient(weight), axes);
  };
  keep(sum(layer.norm_weight, {layer.t, layer.d}), "sum:norm");
  keep(sum(layer.up, {layer.d}), "sum:up");
  keep(sum(layer.down, {layer.d}), "sum:down");
}

/// The layer's results on a mesh, put together: y, the gradient of x, those of the weights.
std::vector<std::vector<double>> results(const MeshSizes& sizes, bool typed = true) {
  const Mesh mesh(sizes);
  std::map<std::string, Tensor> given;
  for (const auto& [name, shape] : std::map<std::string, Shape>{{"x", tokens_shape},
                                                                {"seed", tokens_shape},
                                                                {"norm", {4}},
                                                                {"up", {8, 4}},
                                                                {"down", {4, 8}}}) {
    given.emplace(name, random_tensor(shape, DType::f64, name, 0.5));
  }
  const MeshRun run(
      mesh, [&](Builder& builder) { write_layer(builder, typed); }, give_parts(mesh, given));
  std::vector<std::vector<double>> wholes;
  for (const char* name : {"y", "of_x"}) wholes.push_back(numbers_of(run.whole(name)));
  for (const char* weight : {"norm", "up", "down"}) {
    const std::string name = std::string(typed ? "sum:" : "gradient:") + weight;
    wholes.push_back(numbers_of(run.whole(name)));
  }
  return wholes;
}

std::string refusal(const Mistakes& mistakes, const MeshSizes& sizes) {
  Program program{Mesh(sizes)};
  Builder builder(program);
  try {
    const Layer layer(builder, mistakes);
  } catch (const DistributionError& error) {
    return error.what();
  }
  return "accepted";
}

/// One rank, and meshes on which the layer's conversions move something.
const std::vector<MeshSizes> meshes{
    {}, {.tensor = 2}, {.data = {2}}, {.tensor = 2, .data = {2}}, {.tensor = 4, .data = {2}}};

TEST(TypedProgram, GradientsLieAsTheDualsOfTheirValues) {
  for (const MeshSizes& sizes : meshes) {
    Program program{Mesh(sizes)};
    Builder builder(program);
    const Layer layer(builder);
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
}

TEST(TypedProgram, ConversionsOnOneRankMoveNothing) {
  EXPECT_EQ(results({}), results({}, false));
  const auto nodes_that_run = [](bool typed) {
    Program program;
    Builder builder(program);
    write_layer(builder, typed);
    return segment_nodes(program, Segment::whole).size();
  };
  EXPECT_EQ(nodes_that_run(true), nodes_that_run(false));
}

TEST(TypedProgram, GivesOnMeshesWhatItGivesOnOneRank) {
  const auto expected = results({});
  for (const MeshSizes& sizes : meshes) {
    const auto actual = results(sizes);
    for (size_t i = 0; i < expected.size(); ++i) {
      testing::expect_close(actual[i], expected[i], {.of_largest = 1e-12},
                            fmt::format("result {} on {}", i, Mesh(sizes).text()));
    }
  }
}

TEST(TypedProgram, MistakesAreRefusedWithTheirNames) {
  for (const MeshSizes& sizes : meshes) {
    EXPECT_THAT(refusal({.norm_weight_is_not_retyped = true}, sizes),
                AllOf(HasSubstr("rms_norm: 'norm' is invariant"), HasSubstr("replicated")));
    EXPECT_THAT(refusal({.nothing_is_gathered = true}, sizes),
                AllOf(HasSubstr("linear"), HasSubstr("two labels are split on tensor")));
    EXPECT_THAT(refusal({.sum_is_not_taken = true}, sizes),
                AllOf(HasSubstr("add"), HasSubstr("on tensor"), HasSubstr("partial")));
    EXPECT_THAT(refusal({.sum_is_gathered = true}, sizes),
                AllOf(HasSubstr("sharded -> replicated on tensor"), HasSubstr("is partial")));
    EXPECT_EQ(refusal({}, sizes), "accepted");
  }
}

TEST(TypedProgram, AGradientOfAnotherTypeIsRefused) {
  Program program;
  Builder builder(program);
  const Axis d = program.mesh().data()[0];
  const Value x =
      builder.input("x", {tokens_shape, DType::f64, Distribution().with(d, sharded(0))});
  const Value y = scale(builder, x, 2);
  const Value seed = builder.input("seed", {tokens_shape, DType::f64, {}});
  builder.name(y, "y");
  EXPECT_EQ(
      refusal_of([&] {
        differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x});
      }),
      "differentiate: the gradient of 'y' is invariant; expected data: sharded (dim 0, even)");
}

/// An operation that forgets the sum in its gradient.
class ForgetsTheSum final : public Operation {
 public:
  std::string_view name() const override { return "forgets"; }
  std::string labels(std::span<const Spec>) const override { return "~t -> t"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  std::vector<Value> gradient(Builder& builder, const Node&,
                              std::span<const Value> output_gradients) const override {
    const Axis axis = builder.program().mesh().tensor();
    return {convert(builder, output_gradients[0], axis, Placement::partial, replicated())};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  void run(const Execution&) const override {}
};

TEST(TypedProgram, AnOperationWhoseGradientLiesOtherwiseIsNamed) {
  Program program(Mesh({.tensor = 2}));
  Builder builder(program);
  const Distribution same = Distribution().with(program.mesh().tensor(), replicated());
  const Value x = builder.input("x", {{4}, DType::f64, same});
  const Value y = builder.apply_single(std::make_shared<ForgetsTheSum>(), {x});
  const Value seed = builder.input("seed", {{4}, DType::f64, same.dual()});
  EXPECT_EQ(
      refusal_of([&] {
        differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x});
      }),
      "forgets: the gradient of 'x' is tensor: replicated; expected tensor: partial");
}

/// A replicated loss would be counted once a rank, and a split one is not one number. As a boundary
/// between chunks both have a gradient.
TEST(TypedProgram, ALossIsInvariantOrPartial) {
  for (const int ranks : {1, 2}) {
    const Mesh mesh({.tensor = ranks});
    const Axis t = mesh.tensor();
    const auto differentiated = [&](const TypeOnAxis& type, SeedKind of) {
      Program program(mesh);
      Builder builder(program);
      const Distribution lies = Distribution().with(t, type);
      const Value x = builder.input("x", {{4}, DType::f64, lies});
      const Value y = scale(builder, x, 2);
      builder.name(y, "y");
      const Value seed = builder.input("seed", {{4}, DType::f64, lies.dual()});
      return bool(differentiate(builder, std::vector{Seed{y, seed, of}}, std::vector{x})[0]);
    };
    for (const TypeOnAxis& type : {replicated(), sharded(0)}) {
      EXPECT_EQ(refusal_of([&] { differentiated(type, SeedKind::loss); }),
                fmt::format("differentiate: the loss 'y' is {} on tensor; expected invariant or "
                            "partial",
                            type.text()));
      EXPECT_TRUE(differentiated(type, SeedKind::boundary));
    }
    for (const TypeOnAxis& type : {invariant(), partial()}) {
      EXPECT_TRUE(differentiated(type, SeedKind::loss));
    }
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
  const Value matrix = view(builder, unit, 0, {4, 4}, rows, "matrix");
  const std::vector<Axis> over_data{d};
  const Value gradient = builder.main_gradient(use(builder, matrix, over_data));
  EXPECT_EQ(builder.spec(gradient).distribution, rows.with(d, partial()));
  EXPECT_EQ(builder.spec(program.main_gradient(unit)).distribution, flat.with(d, partial()));
  EXPECT_THROW(view(builder, unit, 16, {4}), DistributionError);  // would be whole
  const auto refused = [&](Value whole, const Distribution& distribution) {
    return refusal_of([&] { view(builder, whole, 16, {4}, distribution, "bias"); });
  };
  EXPECT_THAT(refused(unit, {}),
              AllOf(StartsWith("view: 'unit' is sharded (dim 0, flat) on tensor"),
                    HasSubstr("'bias' [4], a part of it, is invariant")));
  EXPECT_THAT(
      refused(unit, Distribution().with(t, sharded(1))),
      AllOf(HasSubstr("'bias'"), HasSubstr("sharded (dim 1, even)"), HasSubstr("one of its dims")));
  const Value dense = builder.parameter("dense", {{64}, DType::f64, {}});
  const Distribution experts(MeshView::expert);
  for (const Distribution& other : {experts, experts.with(program.mesh().expert(), sharded(0))}) {
    EXPECT_THAT(refused(dense, other),
                AllOf(StartsWith("view: 'dense' is invariant in one view of the mesh"),
                      HasSubstr("'bias'"), HasSubstr("expected the same view")));
  }
}

}  // namespace
}  // namespace tessera
