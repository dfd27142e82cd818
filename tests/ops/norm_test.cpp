#include "ops/norm/norm.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/rematerialize.h"
#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "ops/norm/norm_kernels.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::kBFloat16Rounding;
using testing::RunOptions;

/// A norm with its shapes; the function's inputs are x, then the weight and the residual it has.
struct NormCase {
  NormKind kind = NormKind::rms;
  int64_t rows = 1;
  int64_t groups = 1;
  int64_t width = 1;
  bool weighted = true;
  bool residual = false;

  NormOptions options() const { return {kind, 1e-5, groups > 1 ? width : 0}; }

  std::vector<testing::RunInput> inputs() const {
    const Shape x{rows, groups * width};
    std::vector<testing::RunInput> result{{x}};
    if (weighted) result.push_back({{width}, true});
    if (residual) result.push_back({x});
    return result;
  }

  testing::ProgramFunction function() const {
    return [*this](Builder& builder, std::span<const Value> in) {
      const auto weight = weighted ? std::optional(in[1]) : std::nullopt;
      const auto added = residual ? std::optional(in.back()) : std::nullopt;
      const NormResult result = norm(builder, in[0], weight, options(), added);
      return residual ? std::vector<Value>{result.output, result.sum}
                      : std::vector<Value>{result.output};
    };
  }

  testing::RunResult run(const RunOptions& run_options) const {
    return testing::run_program(function(), inputs(), run_options);
  }
};

std::vector<NormCase> variants(int64_t rows, int64_t groups, int64_t width) {
  std::vector<NormCase> result;
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const bool weighted : {false, true}) {
      for (const bool residual : {false, true}) {
        result.push_back({kind, rows, groups, width, weighted, residual});
      }
    }
  }
  return result;
}

/// Rows of fewer than 8 elements may by chance have next to no deviation, and then gradients that
/// cancel to next to nothing: RowsOfAnyWidth has their outputs.
NormCase random_norm_case() {
  return {*rc::gen::element(NormKind::rms, NormKind::layer),
          *rc::gen::inRange<int64_t>(1, 150),
          *rc::gen::inRange<int64_t>(1, 4),
          *rc::gen::inRange<int64_t>(8, 200),
          *rc::gen::arbitrary<bool>(),
          *rc::gen::arbitrary<bool>()};
}

TEST(Norm, GradientsAgreeWithFiniteDifferences) {
  for (const int64_t groups : {1, 2}) {
    for (const NormCase& variant : variants(3, groups, 5)) {
      std::vector<Shape> shapes;
      for (const testing::RunInput& input : variant.inputs()) shapes.push_back(input.shape);
      testing::check_gradients(variant.function(), shapes);
    }
  }
}

TEST(Norm, OnlyTheSumOrOnlyTheOutputMayHaveAGradient) {
  for (const bool with_sum : {false, true}) {
    testing::check_gradients(
        [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          const NormResult result = norm(builder, in[0], {}, {NormKind::layer}, in[1]);
          return {with_sum ? result.sum : result.output};
        },
        {{2, 4}, {2, 4}});
  }
}

TEST(Norm, MatchesTheFormula) {
  const RunOptions plain{.dtype = DType::f64, .backward = false};
  const NormCase rms{NormKind::rms, 1, 1, 4, false, false};
  const NormCase layer{NormKind::layer, 1, 1, 4, false, false};
  const auto identity = [](Builder& builder, std::span<const Value> in) {
    return std::vector<Value>{scale(builder, in[0], 1.0)};
  };
  const std::vector<double> x = testing::run_program(identity, rms.inputs(), plain).outputs[0];
  const double mean = (x[0] + x[1] + x[2] + x[3]) / 4;
  double squares = 0;
  double centred_squares = 0;
  for (const double entry : x) {
    squares += entry * entry / 4;
    centred_squares += (entry - mean) * (entry - mean) / 4;
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rms.run(plain).outputs[0][i], x[i] / std::sqrt(squares + 1e-5), 1e-14);
    EXPECT_NEAR(layer.run(plain).outputs[0][i], (x[i] - mean) / std::sqrt(centred_squares + 1e-5),
                1e-14);
  }
}

RC_GTEST_PROP(Norm, FastAgreesWithPlain, ()) {
  const NormCase variant = random_norm_case();
  testing::expect_close(variant.run({.kernels = Kernels::fast}),
                        variant.run({.kernels = Kernels::plain}), {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(Norm, RowsOfAnyWidth) {
  for (int64_t width = 1; width < 8; ++width) {
    for (const NormCase& variant : variants(1, 1, width)) {
      testing::expect_close(variant.run({.kernels = Kernels::fast, .backward = false}),
                            variant.run({.kernels = Kernels::plain, .backward = false}), {0, 1e-5});
    }
  }
}

RC_GTEST_PROP(Norm, BFloat16RoundsOnce, ()) {
  NormCase variant = random_norm_case();
  variant.residual = false;
  // The same numbers in f32: the results differ by the one rounding at the end.
  testing::expect_close(
      variant.run({.dtype = DType::bf16, .inputs_fit_bf16 = true}),
      variant.run({.dtype = DType::f32, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
      {kBFloat16Rounding, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(Norm, BFloat16RoundsTheSumBeforeItNormalises, ()) {
  NormCase variant = random_norm_case();
  variant.residual = true;
  // Both kernels round the sum, to the same bits, and the results, whose f32 values differ
  // slightly: by a unit in the last place at most.
  const auto fast = variant.run({.dtype = DType::bf16, .inputs_fit_bf16 = true});
  const auto plain =
      variant.run({.dtype = DType::bf16, .kernels = Kernels::plain, .inputs_fit_bf16 = true});
  testing::expect_close(fast, plain, {2 * kBFloat16Rounding, 1e-5});
  RC_ASSERT(fast.outputs[1] == plain.outputs[1]);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(Norm, BitsDoNotDependOnTheThreads) {
  const std::vector<NormCase> cases{{NormKind::rms, 533, 1, 257, true, true},
                                    {NormKind::layer, 533, 1, 257, true, true},
                                    {NormKind::layer, 533, 1, 257, false, false},
                                    {NormKind::rms, 533, 3, 91}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const NormCase& variant : cases) {
      testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
        return testing::bits_of(
            variant.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
      });
    }
  }
}

TEST(Norm, WorksInTheMemoryOfItsInputs) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const NormCase& variant : variants(7, 1, 100)) {
      // The scaled inputs end at the norm, whose results take their memory.
      const auto in_place = [&](Builder& builder, std::span<const Value> in) {
        std::vector<Value> scaled(in.begin(), in.end());
        scaled[0] = scale(builder, in[0], 1.0);
        if (variant.residual) scaled.back() = scale(builder, in.back(), 1.0);
        return variant.function()(builder, scaled);
      };
      const RunOptions forward{.dtype = dtype, .backward = false};
      EXPECT_EQ(testing::run_program(in_place, variant.inputs(), forward).outputs,
                variant.run(forward).outputs);
    }
  }
}

/// Scaled inputs, a norm with residual as a block of its own, and a use of its output; the backward
/// pass computes the norm again.
testing::RunResult run_recomputed(bool recompute, bool keep_sum, int* inputs_of_recomputation) {
  Runtime runtime(host_target(2));
  Program program;
  Builder builder(program);
  const Spec spec{{9, 70}, DType::bf16, {}};
  const Value x = builder.parameter("x", spec);
  const Value residual = builder.parameter("residual", spec);
  const Value weight = builder.parameter("weight", {{70}, DType::f32, {}});
  NormResult result;
  {
    const Builder::Scope scope = builder.scope("norm", Block::norm);
    result = norm(builder, x, weight, {NormKind::layer}, residual);
  }
  if (keep_sum) builder.keep(result.sum, Keep::block);
  const Value bounded = clamp(builder, result.output, 1.5);
  builder.output(bounded);
  const Value seed = builder.input("seed", spec);
  differentiate(builder, std::vector<Seed>{{bounded, seed}});
  rematerialize(builder, {.norm = recompute});
  for (const Node& node : program.nodes()) {
    if (node.phase == Phase::recompute) {
      *inputs_of_recomputation = static_cast<int>(node.inputs.size());
    }
  }
  testing::ProgramRun frame(program, runtime);
  testing::RunResult run;
  for (const Value value : {x, residual, weight, seed}) {
    const Spec& of = program.spec(value);
    frame.bind(value, testing::random_tensor(of.shape, of.dtype, program.info(value).name));
    if (value == seed) continue;
    const Tensor gradient(of.shape, DType::f32);
    gradient.fill_zero();
    frame.bind(program.main_gradient(value), gradient);
  }
  frame.run();
  for (const Value value : {x, residual, weight}) {
    run.gradients.push_back(testing::as_doubles(frame[program.main_gradient(value)]));
  }
  return run;
}

TEST(Norm, RecomputesFromTheKeptSumWithTheSameBits) {
  int inputs = 0;
  const testing::RunResult kept = run_recomputed(false, false, &inputs);
  EXPECT_EQ(inputs, 0);
  EXPECT_TRUE(kept == run_recomputed(true, false, &inputs));
  EXPECT_EQ(inputs, 3) << "x, the weight and the residual";
  EXPECT_TRUE(kept == run_recomputed(true, true, &inputs));
  EXPECT_EQ(inputs, 2) << "the kept sum and the weight";
}

TEST(Norm, RefusesInputsThatDoNotFit) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 6}, DType::bf16, {}});
  const Value weight = builder.parameter("weight", {{6}, DType::f32, {}});
  const Value short_weight = builder.parameter("short", {{5}, DType::f32, {}});
  const Value rounded_weight = builder.parameter("rounded", {{6}, DType::bf16, {}});
  const Value wide = builder.input("wide", {{4, 6}, DType::f32, {}});
  const NormOptions rms{};
  EXPECT_THROW(norm(builder, x, short_weight, rms), InternalError);
  EXPECT_THROW(norm(builder, x, rounded_weight, rms), InternalError);
  EXPECT_THROW(norm(builder, x, weight, rms, wide), InternalError);
  EXPECT_THROW(norm(builder, x, weight, {.group = 3}), InternalError);
  EXPECT_THROW(norm(builder, x, {}, {.group = 4}), InternalError);
  EXPECT_THROW(norm(builder, x, weight, {.epsilon = 0}), InternalError);
  EXPECT_NO_THROW(norm(builder, x, weight, rms, x));
}

RC_GTEST_PROP(Norm, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  NormCase variant = random_norm_case();
  variant.rows = *rc::gen::inRange<int64_t>(1, 70);
  if (*rc::gen::arbitrary<bool>()) variant.width = *rc::gen::element(8, 64, 512);
  testing::expect_device_agrees(variant.function(), variant.inputs(),
                                {.dtype = *rc::gen::element(DType::f32, DType::bf16)});
}

/// Compares all devices, with warps of 32 and of 64 threads, with the plain kernels.
void expect_all_devices_agree(const NormCase& variant, DType dtype) {
  RunOptions options{.dtype = dtype, .kernels = Kernels::plain, .threads = 1};
  const testing::RunResult expected = variant.run(options);
  options.kernels = Kernels::fast;
  for (const int lanes : {32, 64}) {
    testing::expect_equal_bits_on_devices(
        lanes,
        [&](const testing::Emulation& device) {
          options.emulation = device;
          return variant.run(options);
        },
        [&](const testing::RunResult& result) {
          testing::expect_close(result, expected, testing::device_tolerance(dtype));
        });
  }
}

TEST(Norm, TheDevicesKernelsTakeRowsOfAnyLength) {
  // Teams of one warp and of several, rows that fit into a block's registers, and longer ones.
  for (const int64_t width : {256, 512, 1024, 2048, 8200, 8201}) {
    expect_all_devices_agree({NormKind::rms, 11, 1, width, true, true}, DType::bf16);
    expect_all_devices_agree({NormKind::layer, 11, 1, width, true, false}, DType::f32);
  }
  expect_all_devices_agree({NormKind::layer, 3, 1, 16416, true, true}, DType::bf16);
}

TEST(Norm, TheDevicesKernelsTakeManyRows) {
  // More rows than all blocks have at once.
  expect_all_devices_agree({NormKind::rms, 16500, 1, 8, true, false}, DType::bf16);
}

TEST(Norm, PartsOfADevicesWeightGradientFollowItsMultiprocessors) {
  Target target{.device = Device::cuda, .multiprocessors = 100};
  EXPECT_EQ(norm_parts(target, 1 << 20, 8192), 400);
  EXPECT_EQ(norm_parts(target, 1 << 20, 64), 800);
  EXPECT_EQ(norm_parts(target, 1 << 20, 1 << 20), 100);
  EXPECT_EQ(norm_parts(target, 17, 8192), 3);
  int64_t before = 0;
  for (int64_t rows = 0; rows < 4000; ++rows) {
    EXPECT_GE(norm_parts(target, rows, 8192), before);
    before = norm_parts(target, rows, 8192);
  }
  target.multiprocessors = 0;
  EXPECT_EQ(norm_parts(target, 1 << 20, 1 << 20), multiprocessors_of(target));
  EXPECT_EQ(norm_parts({}, 1 << 20, 64), 256) << "the processor's cut is another";
}

}  // namespace
}  // namespace tessera
