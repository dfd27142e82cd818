#include "ops/norm/split_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/rank_results.h"
#include "support/emulated.h"
#include "support/error_of.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::MeshRun;
using testing::RankResults;
using testing::Wholes;

struct SplitNormCase {
  NormKind kind;
  bool weighted;
};

const std::vector<SplitNormCase>& norm_cases() {
  static const std::vector<SplitNormCase> all{{NormKind::rms, true},
                                              {NormKind::rms, false},
                                              {NormKind::layer, true},
                                              {NormKind::layer, false}};
  return all;
}

/// A norm, of the kind that is asked for, of rows that are split over tensor and over data.
testing::WriteProgram norm_program(const SplitNormCase& of, int64_t tokens, int64_t columns,
                                   DType dtype, bool fused) {
  return [=](Builder& builder) {
    const Mesh& mesh = builder.program().mesh();
    const Axis t = mesh.tensor(), d = mesh.data()[0];
    const int64_t own = columns / mesh.size(t);
    const Distribution columns_only = Distribution().with(t, sharded(0)).with(d, replicated());
    const Distribution rows = Distribution().with(d, sharded(0)).with(t, sharded(1));
    const bool typed = !fused;
    const Value x =
        builder.input("x", {{tokens / mesh.size(d), own}, dtype, typed ? rows : Distribution()});
    std::optional<Value> weight;
    if (of.weighted) {
      weight = builder.parameter(
          "weight", {{own}, accumulation_dtype(dtype), typed ? columns_only : Distribution()});
    }
    const NormOptions options{.kind = of.kind, .epsilon = 1e-3};
    const Value y = fused ? norm(builder, x, weight, options).output
                          : split_norm(builder, x, weight, t, options);
    testing::mark(builder, y, "y");
    const Value seed = builder.input("seed", builder.spec(y));
    testing::mark(
        builder,
        differentiate(builder, std::vector{Seed{y, seed, SeedKind::boundary}}, std::vector{x})[0],
        "of_x");
  };
}

RankResults run_norm(const MeshSizes& sizes, const SplitNormCase& of, const Shape& shape,
                     DType dtype, bool fused, double offset = 0) {
  const auto moved = [&](const Tensor& tensor) {
    for (double& value : tensor.values<double>()) value += offset;
    return tensor;
  };
  const auto of_type = [&](const Tensor& wide, DType type) {
    Tensor result(wide.shape(), type);
    convert(wide, result);
    return result;
  };
  const Mesh mesh(sizes);
  const Wholes wholes{
      {"x", of_type(moved(testing::random_tensor(shape, DType::f64, "x", 2)), dtype)},
      {"weight", testing::random_tensor({shape[1]}, accumulation_dtype(dtype), "weight")},
      {"seed", testing::random_tensor(shape, dtype, "seed")}};
  const MeshRun run(mesh, norm_program(of, shape[0], shape[1], dtype, fused),
                    testing::give_parts(mesh, wholes));
  RankResults results = testing::results_of(run, {"y", "of_x"});
  if (of.weighted) results.merge(testing::results_of(run, {"gradient:weight"}));
  return results;
}

TEST(SplitNorm, OnOneRankItIsTheFusedNorm) {
  for (const SplitNormCase& of : norm_cases()) {
    for (const Shape& shape : {Shape{1, 3}, Shape{6, 5}, Shape{34, 132}}) {
      testing::expect_results(run_norm({}, of, shape, DType::f64, false),
                              run_norm({}, of, shape, DType::f64, true), {.of_largest = 1e-12});
      testing::expect_results(run_norm({}, of, shape, DType::f32, false),
                              run_norm({}, of, shape, DType::f64, true), {.of_largest = 1e-5});
    }
  }
}

TEST(SplitNorm, OnSeveralRanksItIsTheFusedNormOfWholeRows) {
  for (const SplitNormCase& of : norm_cases()) {
    const Shape shape{6, 132};
    const RankResults expected = run_norm({}, of, shape, DType::f64, true);
    for (const MeshSizes& sizes : testing::head_layouts()) {
      SCOPED_TRACE(Mesh(sizes).text());
      testing::expect_results(run_norm(sizes, of, shape, DType::f64, false), expected,
                              {.of_largest = 1e-12});
      testing::expect_results(run_norm(sizes, of, shape, DType::f32, false), expected,
                              {.of_largest = 1e-5});
    }
  }
}

TEST(SplitNorm, BrainFloatStaysWithinItsRounding) {
  for (const SplitNormCase& of : norm_cases()) {
    const RankResults found = run_norm({}, of, {34, 132}, DType::bf16, false);
    const RankResults expected = run_norm({}, of, {34, 132}, DType::bf16, true);
    for (const auto& [name, numbers] : expected) {
      // The gradient of x is a sum of up to three terms that are rounded by themselves.
      testing::expect_close(found.at(name), numbers,
                            {.of_entry = testing::kBFloat16Rounding,
                             .of_largest = name == "of_x" ? 2 * testing::kBFloat16Rounding : 1e-5},
                            name);
    }
  }
}

/// Means far from zero: squares about zero, less the mean's, would lose all digits in f32.
TEST(SplitNorm, LayerNormIsExactFarFromZero) {
  const SplitNormCase of{NormKind::layer, true};
  const RankResults found = run_norm({}, of, {6, 64}, DType::f32, false, 3000);
  testing::expect_results(found, run_norm({}, of, {6, 64}, DType::f32, true, 3000),
                          {.of_largest = 1e-3});
}

TEST(SplitNorm, GradientsAgreeWithFiniteDifferences) {
  for (const SplitNormCase& of : norm_cases()) {
    testing::check_gradients(
        [of](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          std::optional<Value> weight, sums;
          if (of.weighted) weight = in[2];
          if (of.kind == NormKind::layer) sums = in[3];
          // Statistics that are not those of x: each operand's gradient by itself.
          std::vector<Value> outputs{
              scale_rows(builder, in[0], weight, {.squares = in[1], .sums = sums, .columns = 9})};
          if (!weight) outputs.push_back(row_sums(builder, in[2]));
          if (!sums) outputs.push_back(row_sums(builder, in[3]));
          return outputs;
        },
        {{4, 5},
         {4},
         of.weighted ? Shape{5} : Shape{3, 2},
         of.kind == NormKind::layer ? Shape{4} : Shape{4, 2}},
        nullptr, {},
        [](std::vector<Tensor>& values) {
          for (double& square : values[1].values<double>()) square = 2 + std::abs(square);
        });
    testing::check_gradients(
        [of](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          std::optional<Value> sums;
          if (of.kind == NormKind::layer) sums = row_sums(builder, in[0]);
          return {row_squares(builder, in[0], sums, 5)};
        },
        {{4, 5}});
  }
}

TEST(SplitNorm, LiesAsItsRowsDo) {
  const Mesh mesh;
  Program program(mesh);
  Builder builder(program);
  norm_program({NormKind::layer, true}, 4, 6, DType::f32, false)(builder);
  const auto text = [&](const char* name) {
    return program.spec(program.find(name)).distribution.text(mesh);
  };
  EXPECT_EQ(text("y"), "tensor: sharded (dim 1, even), data: sharded (dim 0, even)");
  EXPECT_EQ(text("of_x"), text("y"));
  EXPECT_EQ(text("gradient:weight"), "tensor: sharded (dim 0, even), data: partial");
  EXPECT_EQ(text("row_squares#2"), "tensor: partial, data: sharded (dim 0, even)");
}

TEST(SplitNorm, BitsDoNotDependOnTheThreads) {
  for (const SplitNormCase& of : norm_cases()) {
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(testing::run_program(
              [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
                const Axis t = builder.program().mesh().tensor();
                const auto split = [&](Value value, int dim) {
                  return convert(builder, scale(builder, value, 1), t, Placement::invariant,
                                 sharded(dim));
                };
                std::optional<Value> weight;
                if (of.weighted) weight = split(in[1], 0);
                const Value x = split(in[0], 1);
                return {split_norm(builder, x, weight, t, {.kind = of.kind})};
              },
              {{{301, 530}}, {{530}, true}},
              {.dtype = DType::bf16, .kernels = kernels, .threads = threads}));
        },
        testing::FastKernel::same_bits);
  }
}

TEST(SplitNorm, RefusesWhatDoesNotFit) {
  Program program;
  Builder builder(program);
  const Axis t = program.mesh().tensor();
  const Value whole = builder.input("whole", {{4, 6}, DType::f32, {}});
  EXPECT_THROW(split_norm(builder, whole, {}, t, {}), DistributionError);
  const Distribution split = Distribution().with(t, sharded(1));
  const Value x = builder.input("x", {{4, 6}, DType::f32, split});
  EXPECT_THROW(split_norm(builder, x, {}, t, {.group = 3}), InternalError);
  const Value short_weight =
      builder.input("weight", {{5}, DType::f32, Distribution().with(t, sharded(0))});
  EXPECT_THROW(split_norm(builder, x, short_weight, t, {}), InternalError);
  EXPECT_THROW(
      scale_rows(builder, x, {}, {.squares = row_squares(builder, x, {}, 6), .columns = 6}),
      DistributionError);  // the squares are partial
}

TEST(SplitNorm, IsRefusedOnDevices) {
  Program program;
  Builder builder(program);
  norm_program({NormKind::rms, false}, 4, 6, DType::f32, false)(builder);
  Runtime runtime = testing::make_runtime(host_target(1), testing::Emulation{});
  const Node& node = program.nodes().front();
  EXPECT_THAT(
      error_of([&] { node.operation->require_runnable(runtime, program.specs(node.inputs)); }),
      HasSubstr("row_squares: devices cannot norm rows that ranks share yet"));
}

}  // namespace
}  // namespace tessera
