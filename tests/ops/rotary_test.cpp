#include "ops/rotary/rotary.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::kBFloat16Rounding;
using testing::RunOptions;

/// A rotation of x [tokens, heads * head_dim] at random positions.
struct RotaryCase {
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t channels;

  testing::ProgramFunction function() const {
    return [*this](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      const Value positions = builder.input("positions", {{tokens}, DType::i32, {}});
      const Value table = rotary_table(builder, positions, {.channels = channels},
                                       accumulation_dtype(builder.spec(in[0]).dtype));
      return {rotary(builder, in[0], table, head_dim)};
    };
  }

  testing::FixedInputs positions(uint64_t end = 4096) const {
    const Tensor result({tokens}, DType::i32);
    const CounterRandom random(3, "positions");
    for (int64_t i = 0; i < tokens; ++i) {
      result.data<int32_t>()[i] = static_cast<int32_t>(random.bits(static_cast<uint64_t>(i)) % end);
    }
    return {{"positions", result}};
  }

  Shape shape() const { return {tokens, heads * head_dim}; }

  testing::RunResult run(RunOptions options) const {
    options.fixed = positions();
    return testing::run_program(function(), {{shape()}}, options);
  }
};

RotaryCase random_rotary_case() {
  const auto half = *rc::gen::inRange<int64_t>(1, 70);
  return {*rc::gen::inRange<int64_t>(1, 40), *rc::gen::inRange<int64_t>(1, 5),
          2 * half + *rc::gen::inRange<int64_t>(0, 40), 2 * half};
}

TEST(Rotary, GradientsAgreeWithFiniteDifferences) {
  for (const RotaryCase& variant : {RotaryCase{3, 2, 6, 6}, RotaryCase{1, 1, 5, 2}}) {
    testing::check_gradients(variant.function(), {variant.shape()},
                             [&]() { return variant.positions(); });
  }
}

TEST(Rotary, TurnsPairsByThePositionTimesTheFrequency) {
  const RotaryCase variant{2, 2, 6, 4};
  const RunOptions forward{.dtype = DType::f64, .backward = false};
  const auto identity = [](Builder& builder, std::span<const Value> in) {
    return std::vector<Value>{scale(builder, in[0], 1.0)};
  };
  const auto x = testing::run_program(identity, {{variant.shape()}}, forward).outputs[0];
  const auto y = variant.run(forward).outputs[0];
  const Tensor positions = variant.positions().at("positions");
  for (size_t token = 0; token < 2; ++token) {
    for (size_t head = 0; head < 2; ++head) {
      const size_t start = (token * 2 + head) * 6;
      for (size_t pair = 0; pair < 2; ++pair) {
        const double angle = positions.data<int32_t>()[token] * std::pow(1e4, -0.5 * pair);
        const double first = x[start + pair];
        const double second = x[start + pair + 2];
        EXPECT_NEAR(y[start + pair], first * std::cos(angle) - second * std::sin(angle), 1e-13);
        EXPECT_NEAR(y[start + pair + 2], second * std::cos(angle) + first * std::sin(angle), 1e-13);
      }
      EXPECT_EQ(y[start + 4], x[start + 4]);
      EXPECT_EQ(y[start + 5], x[start + 5]);
    }
  }
}

TEST(Rotary, LlamaScalingStretchesLowFrequenciesOnly) {
  const RotaryOptions plain{.channels = 128, .theta = 5e5};
  RotaryOptions scaled = plain;
  scaled.scaling = RotaryScaling{};
  const std::vector<double> before = rotary_frequencies(plain);
  const std::vector<double> after = rotary_frequencies(scaled);
  int interpolated = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(before[i], std::pow(5e5, -static_cast<double>(i) / 64), 1e-15);
    const double wavelength = 2 * std::numbers::pi / before[i];
    if (wavelength < 2048) {
      EXPECT_EQ(after[i], before[i]);
    } else if (wavelength > 8192) {
      EXPECT_EQ(after[i], before[i] / 8);
    } else {
      // At a wavelength of 8192 / s the frequency is (1 - t) / 8 + t of itself, t = (s - 1) / 3.
      const double t = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(after[i] / before[i], 0.125 + 0.875 * t, 1e-12);
      ++interpolated;
    }
  }
  EXPECT_GT(interpolated, 3);
  // Frequency 32 by hand: 5e5^-0.5, wavelength 4442.88, 8192 / 4442.88 = 1.84385, t = 0.281283.
  EXPECT_NEAR(after[32] / before[32], 0.371123, 1e-5);
}

RC_GTEST_PROP(Rotary, FastAgreesWithPlain, ()) {
  const RotaryCase variant = random_rotary_case();
  testing::expect_close(variant.run({.kernels = Kernels::fast}),
                        variant.run({.kernels = Kernels::plain}), {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(Rotary, BFloat16RoundsOnce, ()) {
  const RotaryCase variant = random_rotary_case();
  testing::expect_close(
      variant.run({.dtype = DType::bf16, .inputs_fit_bf16 = true}),
      variant.run({.dtype = DType::f32, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
      {kBFloat16Rounding, 1e-6});
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(Rotary, BitsDoNotDependOnTheThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const RotaryCase variant{701, 3, 70, 66};
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(
              variant.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
        },
        testing::FastKernel::same_bits);
  }
}

TEST(Rotary, WorksInPlace) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const RotaryCase variant{5, 3, 70, 66};
    // The scaled input ends at the rotation, which takes its memory.
    const auto in_place = [&](Builder& builder, std::span<const Value> in) {
      return variant.function()(builder, std::vector<Value>{scale(builder, in[0], 1.0)});
    };
    const RunOptions forward{.dtype = dtype, .backward = false, .fixed = variant.positions()};
    EXPECT_EQ(testing::run_program(in_place, {{variant.shape()}}, forward).outputs,
              variant.run(forward).outputs);
  }
}

TEST(Rotary, RefusesShapesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const Value positions = builder.input("positions", {{4}, DType::i32, {}});
  const Value x = builder.input("x", {{4, 16}, DType::bf16, {}});
  const Value longer = builder.input("longer", {{5, 16}, DType::bf16, {}});
  const Value table = rotary_table(builder, positions, {.channels = 8}, DType::f32);
  const Value wide_table = rotary_table(builder, positions, {.channels = 8}, DType::f64);
  EXPECT_NO_THROW(rotary(builder, x, table, 8));
  EXPECT_THROW(rotary(builder, x, table, 4), InternalError);
  EXPECT_THROW(rotary(builder, x, table, 12), InternalError);
  EXPECT_THROW(rotary(builder, longer, table, 8), InternalError);
  EXPECT_THROW(rotary(builder, x, wide_table, 8), InternalError);
  EXPECT_THROW(rotary_table(builder, x, {.channels = 8}, DType::f32), InternalError);
  EXPECT_THROW(rotary_table(builder, positions, {.channels = 7}, DType::f32), InternalError);
  EXPECT_THROW(rotary_table(builder, positions, {.channels = 0}, DType::f32), InternalError);
  EXPECT_THROW(rotary_table(builder, positions, {.channels = 8}, DType::bf16), InternalError);
  EXPECT_THROW(rotary_table(builder, positions,
                            {.channels = 8, .scaling = RotaryScaling{8, 4, 4, 8192}}, DType::f32),
               InternalError);
}

RC_GTEST_PROP(Rotary, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  RotaryCase variant = random_rotary_case();
  if (*rc::gen::arbitrary<bool>()) {
    variant.channels = *rc::gen::element(16, 32, 64);
    variant.head_dim = variant.channels + *rc::gen::element(0, 4, 8, 64);
  }
  variant.heads = *rc::gen::inRange<int64_t>(1, 10);
  const bool in_place = *rc::gen::arbitrary<bool>();
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) {
        const Value x = in_place ? scale(builder, in[0], 1.0) : in[0];
        return variant.function()(builder, std::vector<Value>{x});
      },
      {{variant.shape()}},
      {.dtype = *rc::gen::element(DType::f32, DType::bf16), .fixed = variant.positions()});
}

/// Positions are large too: the angles' whole turns must go before anything is rounded.
RC_GTEST_PROP(Rotary, TheDevicesKernelsAgreeOnTheTable, ()) {
  const RotaryCase variant{.tokens = *rc::gen::inRange<int64_t>(1, 40),
                           .heads = 1,
                           .head_dim = 0,
                           .channels = *rc::gen::element(2, 6, 64, 530)};
  RotaryOptions options{.channels = variant.channels, .theta = *rc::gen::element(0.5, 1e4, 5e5)};
  if (*rc::gen::arbitrary<bool>()) options.scaling = RotaryScaling{};
  const uint64_t end = *rc::gen::element<uint64_t>(16, 4096, 1 << 20, 1 << 30);
  testing::expect_device_agrees(
      [&](Builder& builder, std::span<const Value>) -> std::vector<Value> {
        const Value positions = builder.input("positions", {{variant.tokens}, DType::i32, {}});
        return {rotary_table(builder, positions, options, DType::f32)};
      },
      {}, {.backward = false, .fixed = variant.positions(end)});
}

}  // namespace
}  // namespace tessera
