#include "ops/norm/scaled_residual.h"

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/host_target.h"
#include "ops/scaled_residual_cases.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::kBFloat16Rounding;
using testing::ResidualCase;

/// Rows of fewer than 8 elements may by chance have gradients that cancel to next to nothing.
ResidualCase random_scaled_case() {
  return {*rc::gen::inRange<int64_t>(1, 150), *rc::gen::inRange<int64_t>(8, 300),
          *rc::gen::arbitrary<bool>()};
}

std::vector<Shape> shapes_of(const ResidualCase& variant) {
  std::vector<Shape> shapes;
  for (const testing::RunInput& input : variant.inputs()) shapes.push_back(input.shape);
  return shapes;
}

TEST(ScaledResidual, GradientsAgreeWithFiniteDifferences) {
  for (const bool streams : {false, true}) {
    const ResidualCase variant{3, 5, streams};
    testing::check_gradients(variant.function(), shapes_of(variant));
  }
}

TEST(ScaledResidual, TheStreamMayHaveNoGradient) {
  for (const bool streams : {false, true}) {
    const ResidualCase variant{3, 5, streams};
    testing::check_gradients(
        [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {variant.function()(builder, in)[0]};
        },
        shapes_of(variant));
  }
}

/// Numbers by hand: x = (1, -2), (x + 1) · 2 = (4, -2); stream = (3, 5), (stream - 1) · 0.5 = (1,
/// 2). Their sum is (5, 0), whose root mean square is 5 / sqrt 2.
TEST(ScaledResidual, MatchesNumbersByHand) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const auto input = [&](const std::string& name, const Shape& shape) {
    return builder.input(name, {shape, DType::f64, {}});
  };
  const Value x = input("x", {1, 2}), stream = input("stream", {1, 2});
  const ResidualScale x_scaling{input("scale", {2}), input("bias", {2})};
  const ResidualScale stream_scaling{input("stream_scale", {2}), input("stream_bias", {2})};
  const Value weight = input("weight", {2});
  const ScaledResidual result = scaled_residual_norm(builder, x, x_scaling, stream, stream_scaling,
                                                     weight, {.epsilon = 1e-300});
  builder.output(result.output);
  builder.output(result.stream);
  testing::ProgramRun run(program, runtime);
  const auto bind = [&](Value value, double first, double second) {
    const Tensor tensor(program.spec(value).shape, DType::f64);
    tensor.data<double>()[0] = first;
    tensor.data<double>()[1] = second;
    run.bind(value, tensor);
  };
  bind(x, 1, -2);
  bind(x_scaling.bias, 1, 1);
  bind(x_scaling.scale, 2, 2);
  bind(stream, 3, 5);
  bind(stream_scaling.bias, -1, -1);
  bind(stream_scaling.scale, 0.5, 0.5);
  bind(weight, 3, 7);
  run.run();
  EXPECT_EQ(testing::as_doubles(run[result.stream]), std::vector<double>({5, 0}));
  EXPECT_NEAR(testing::as_doubles(run[result.output])[0], 3 * std::sqrt(2.0), 1e-14);
  EXPECT_EQ(testing::as_doubles(run[result.output])[1], 0);
}

RC_GTEST_PROP(ScaledResidual, FastAgreesWithPlain, ()) {
  const ResidualCase variant = random_scaled_case();
  testing::expect_close(variant.run({.kernels = Kernels::fast}),
                        variant.run({.kernels = Kernels::plain}), {0, 2e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(ScaledResidual, BFloat16RoundsTheOutputOnceAndTheStreamNever, ()) {
  const ResidualCase variant = random_scaled_case();
  const auto rounded = variant.run({.dtype = DType::bf16, .inputs_fit_bf16 = true});
  const auto exact =
      variant.run({.dtype = DType::f32, .kernels = Kernels::plain, .inputs_fit_bf16 = true});
  testing::expect_close(rounded, exact, {kBFloat16Rounding, 2e-5});
  double off = 0;
  for (size_t i = 0; i < exact.outputs[1].size(); ++i) {
    off = std::max(off, std::abs(rounded.outputs[1][i] - exact.outputs[1][i]));
  }
  RC_ASSERT(off < 1e-5);
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(ScaledResidual, BitsDoNotDependOnTheThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool streams : {false, true}) {
      const ResidualCase variant{533, 257, streams};
      testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
        return testing::bits_of(
            variant.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
      });
    }
  }
}

RC_GTEST_PROP(ScaledResidual, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  ResidualCase variant = random_scaled_case();
  variant.rows = *rc::gen::inRange<int64_t>(1, 70);
  testing::expect_device_agrees(variant.function(), variant.inputs(),
                                {.dtype = *rc::gen::element(DType::f32, DType::bf16)});
}

}  // namespace
}  // namespace tessera
