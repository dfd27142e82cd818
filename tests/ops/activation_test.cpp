#include "ops/activation/activation.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::kBFloat16Rounding;
using testing::RunOptions;

constexpr Activation kBoth[] = {Activation::silu, Activation::gelu};

testing::ProgramFunction gated(Activation kind) {
  return [kind](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
    return {gated_activation(builder, in[0], in[1], kind)};
  };
}

testing::RunResult run(Activation kind, const Shape& shape, const RunOptions& options) {
  return testing::run_program(gated(kind), {{shape}, {shape}}, options);
}

Shape random_activation_shape() {
  return {*rc::gen::inRange<int64_t>(1, 100), *rc::gen::inRange<int64_t>(1, 100)};
}

TEST(GatedActivation, GradientsAgreeWithFiniteDifferences) {
  for (const Activation kind : kBoth) {
    testing::check_gradients(gated(kind), {{3, 7}, {3, 7}}, nullptr, {.deviation = 2});
  }
}

TEST(GatedActivation, MatchesTheFormula) {
  const auto inputs = [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
    return {scale(builder, in[0], 1.0), scale(builder, in[1], 1.0)};
  };
  const RunOptions forward{.dtype = DType::f64, .backward = false};
  const auto x = testing::run_program(inputs, {{{9}}, {{9}}}, forward).outputs;
  const auto silu = run(Activation::silu, {9}, forward).outputs[0];
  const auto gelu = run(Activation::gelu, {9}, forward).outputs[0];
  for (size_t i = 0; i < 9; ++i) {
    const double gate = x[0][i];
    EXPECT_NEAR(silu[i], gate / (1 + std::exp(-gate)) * x[1][i], 1e-14);
    EXPECT_NEAR(gelu[i], gate * 0.5 * std::erfc(-gate / std::sqrt(2.0)) * x[1][i], 1e-14);
  }
}

RC_GTEST_PROP(GatedActivation, FastAgreesWithPlain, ()) {
  const Shape shape = random_activation_shape();
  for (const Activation kind : kBoth) {
    testing::expect_close(run(kind, shape, {.kernels = Kernels::fast}),
                          run(kind, shape, {.kernels = Kernels::plain}), {1e-5, 1e-6});
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(GatedActivation, BFloat16RoundsOnce, ()) {
  const Shape shape = random_activation_shape();
  for (const Activation kind : kBoth) {
    testing::expect_close(
        run(kind, shape, {.dtype = DType::bf16, .inputs_fit_bf16 = true}),
        run(kind, shape, {.dtype = DType::f32, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
        {kBFloat16Rounding, 1e-6});
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(GatedActivation, BitsDoNotDependOnTheThreads) {
  for (const Activation kind : kBoth) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
        return testing::bits_of(
            run(kind, {157, 1001}, {.dtype = dtype, .kernels = kernels, .threads = threads}));
      });
    }
  }
}

TEST(GatedActivation, WorksInTheMemoryOfItsInputs) {
  for (const Activation kind : kBoth) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      // The scaled inputs end at the activation or at its gradient, which take their memory.
      const auto in_place = [&](Builder& builder, std::span<const Value> in) {
        return gated(kind)(
            builder, std::vector<Value>{scale(builder, in[0], 1.0), scale(builder, in[1], 1.0)});
      };
      const Shape shape{3, 101};
      for (const bool backward : {false, true}) {
        const RunOptions options{.dtype = dtype, .backward = backward};
        EXPECT_TRUE(testing::run_program(in_place, {{shape}, {shape}}, options) ==
                    run(kind, shape, options));
      }
    }
  }
}

TEST(GatedActivation, StaysFiniteAtLargeInputs) {
  Runtime runtime(host_target(1));
  for (const Activation kind : kBoth) {
    Program program;
    Builder builder(program);
    const Spec spec{{4}, DType::f32, {}};
    const Value gate = builder.input("gate", spec);
    const Value up = builder.input("up", spec);
    const Value output = gated_activation(builder, gate, up, kind);
    builder.output(output);
    testing::ProgramRun frame(program, runtime);
    float gates[] = {-1e30f, -200.0f, 200.0f, 1e30f};
    float ups[] = {1.0f, 1.0f, 1.0f, 1.0f};
    frame.bind(gate, Tensor::wrap(gates, {4}, DType::f32));
    frame.bind(up, Tensor::wrap(ups, {4}, DType::f32));
    frame.run();
    EXPECT_THAT(frame[output].values<float>(), ::testing::ElementsAre(0.0f, 0.0f, 200.0f, 1e30f));
  }
}

TEST(GatedActivation, RefusesOperandsThatDiffer) {
  Program program;
  Builder builder(program);
  const Value gate = builder.input("gate", {{4, 6}, DType::bf16, {}});
  const Value narrow = builder.input("narrow", {{4, 5}, DType::bf16, {}});
  const Value wide = builder.input("wide", {{4, 6}, DType::f32, {}});
  const Value ids = builder.input("ids", {{4, 6}, DType::i32, {}});
  EXPECT_THROW(gated_activation(builder, gate, narrow, Activation::silu), InternalError);
  EXPECT_THROW(gated_activation(builder, gate, wide, Activation::silu), InternalError);
  EXPECT_THROW(gated_activation(builder, ids, ids, Activation::silu), InternalError);
}

/// A scaled operand ends at the activation or at its gradient, which take its memory.
RC_GTEST_PROP(GatedActivation, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const Activation kind = *rc::gen::element(Activation::silu, Activation::gelu);
  const Shape shape{*rc::gen::inRange<int64_t>(1, 70), *rc::gen::element(1, 7, 8, 61, 64)};
  const bool in_place = *rc::gen::arbitrary<bool>();
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const double deviation = 3;  // reaches the tails of the activations
        const Value gate = scale(builder, in[0], deviation);
        const Value up = in_place ? scale(builder, in[1], 1.0) : in[1];
        return {gated_activation(builder, gate, up, kind)};
      },
      {{shape}, {shape}}, {.dtype = *rc::gen::element(DType::f32, DType::bf16)});
}

/// The rows behind the last offset are left as they were.
RC_GTEST_PROP(GatedActivation, TheDevicesKernelsTakeTheRowsOfExperts, ()) {
  const Activation kind = *rc::gen::element(Activation::silu, Activation::gelu);
  const Shape shape{*rc::gen::inRange<int64_t>(1, 70), *rc::gen::element(1, 7, 8, 61, 64)};
  const auto used = *rc::gen::inRange<int32_t>(0, static_cast<int32_t>(shape[0]) + 1);
  const Tensor offsets({3}, DType::i32);
  std::ranges::copy(std::vector{0, used / 2, used}, offsets.data<int32_t>());
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value rows = builder.input("offsets", {{3}, DType::i32, {}});
        return {gated_activation(builder, in[0], in[1], kind, rows)};
      },
      {{shape}, {shape}},
      {.dtype = *rc::gen::element(DType::f32, DType::bf16),
       .unused_rows = true,
       .fixed = {{"offsets", offsets}}});
}

}  // namespace
}  // namespace tessera
