#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe_program.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::kBFloat16Rounding;
using testing::SmallProgram;

/// Experts with their numbers of rows, weights [out_i, in] on each, and unused rows at the end.
struct GroupedCase {
  std::vector<int32_t> rows_of_expert;
  int64_t in = 1;
  std::vector<int64_t> outs = {1};
  int64_t unused = 0;

  int64_t experts() const { return static_cast<int64_t>(rows_of_expert.size()); }
  int64_t used() const {
    int64_t rows = 0;
    for (const int32_t count : rows_of_expert) rows += count;
    return rows;
  }
  int64_t rows() const { return used() + unused; }

  Tensor offsets() const {
    const Tensor tensor({experts() + 1}, DType::i32);
    int32_t* at = tensor.data<int32_t>();
    *at = 0;
    for (const int32_t count : rows_of_expert) {
      at[1] = at[0] + count;
      ++at;
    }
    return tensor;
  }

  std::vector<Shape> shapes() const {
    std::vector<Shape> shapes{{rows(), in}};
    for (const int64_t out : outs) shapes.push_back({experts(), out, in});
    return shapes;
  }

  testing::ProgramFunction function() const {
    return [experts = experts()](Builder& builder, std::span<const Value> inputs) {
      const Value offsets = builder.input("offsets", {{experts + 1}, DType::i32, {}});
      return grouped_linear(builder, inputs[0], inputs.subspan(1), offsets);
    };
  }

  testing::RunResult run(testing::RunOptions options) const {
    options.fixed.emplace("offsets", offsets());
    options.unused_rows = true;
    std::vector<testing::RunInput> inputs;
    for (const Shape& shape : shapes()) inputs.push_back({shape});
    return testing::run_program(function(), inputs, options);
  }
};

/// Numbers of rows on both sides of the sizes of pieces, some of them zero.
GroupedCase random_grouped_case() {
  GroupedCase random;
  random.rows_of_expert = *rc::gen::nonEmpty(rc::gen::container<std::vector<int32_t>>(
      rc::gen::element<int32_t>(0, 0, 1, 3, 15, 16, 17, 100, 255, 256, 257)));
  if (random.rows_of_expert.size() > 4) random.rows_of_expert.resize(4);
  random.in = *rc::gen::inRange<int64_t>(1, 40);
  random.outs = {*rc::gen::element<int64_t>(1, 5, 16, 33, 257)};
  if (*rc::gen::arbitrary<bool>()) random.outs.push_back(*rc::gen::inRange<int64_t>(1, 40));
  random.unused = *rc::gen::element<int64_t>(0, 0, 1, 20);
  return random;
}

TEST(GroupedLinear, GradientsAgreeWithFiniteDifferences) {
  const GroupedCase cases[] = {
      {.rows_of_expert = {1}},
      {.rows_of_expert = {2, 0, 3}, .in = 3, .outs = {2, 4}, .unused = 2},
      {.rows_of_expert = {0, 0}, .in = 2, .outs = {2}, .unused = 3},
      {.rows_of_expert = {0, 4, 1, 0}, .in = 2, .outs = {1, 2, 3}},
  };
  for (const GroupedCase& grouped : cases) {
    check_gradients(grouped.function(), grouped.shapes(), [&]() {
      return testing::FixedInputs{{"offsets", grouped.offsets()}};
    });
  }
}

RC_GTEST_PROP(GroupedLinear, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  GroupedCase grouped = random_grouped_case();
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  grouped.in = testing::product_size(grouped.in, dtype);
  for (int64_t& out : grouped.outs) out = testing::product_size(out, dtype);
  std::vector<testing::RunInput> inputs;
  for (const Shape& shape : grouped.shapes()) inputs.push_back({shape});
  testing::expect_device_agrees(grouped.function(), inputs,
                                {.dtype = dtype,
                                 .inputs_fit_bf16 = true,
                                 .unused_rows = true,
                                 .fixed = {{"offsets", grouped.offsets()}}});
}

RC_GTEST_PROP(GroupedLinear, FastAgreesWithPlain, ()) {
  const GroupedCase grouped = random_grouped_case();
  const auto plain = grouped.run({.kernels = Kernels::plain, .inputs_fit_bf16 = true});
  testing::expect_close(grouped.run({.inputs_fit_bf16 = true}), plain, {0, 1e-5});
  // Products of bf16 numbers are exact in f32, so that outputs and input gradients differ by the
  // one rounding at the end and by the order of the sums; weight gradients by the latter alone.
  const auto narrow = grouped.run({.dtype = DType::bf16, .inputs_fit_bf16 = true});
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    testing::expect_close(narrow.outputs[i], plain.outputs[i], {kBFloat16Rounding, 1e-5}, "output");
    testing::expect_close(narrow.gradients[i + 1], plain.gradients[i + 1], {0, 1e-5},
                          "weight gradient");
  }
  testing::expect_close(narrow.gradients[0], plain.gradients[0], {kBFloat16Rounding, 1e-5},
                        "input gradient");
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(GroupedLinear, BitsDoNotDependOnTheThreads) {
  const GroupedCase grouped{
      .rows_of_expert = {300, 0, 17, 513, 40, 1, 77}, .in = 48, .outs = {300, 32}, .unused = 5};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(
              grouped.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
        },
        testing::of_products());
  }
}

TEST(GroupedLinear, AnOutputThatNothingReadsHasNoGradient) {
  const GroupedCase grouped{.rows_of_expert = {2, 3}, .in = 3, .outs = {2, 4}};
  const auto result = testing::run_program(
      [&](Builder& builder, std::span<const Value> inputs) -> std::vector<Value> {
        return {grouped.function()(builder, inputs)[1]};
      },
      {{{5, 3}}, {{2, 2, 3}}, {{2, 4, 3}}}, {.fixed = {{"offsets", grouped.offsets()}}});
  EXPECT_EQ(result.gradients[0].size(), 15U);
  EXPECT_TRUE(result.gradients[1].empty());
  EXPECT_EQ(result.gradients[2].size(), 24U);
}

TEST(GroupedLinear, ComputedWeightsGetAValueOfTheirOwn) {
  const GroupedCase grouped{.rows_of_expert = {20, 3}, .in = 3, .outs = {4}};
  // The sum of a weight with itself is no parameter; its gradient comes back twice to `weight`.
  const auto twice = testing::run_program(
      [&](Builder& builder, std::span<const Value> inputs) {
        const Value addends[] = {inputs[1], inputs[1]};
        const Value computed[] = {inputs[0], add(builder, addends, DType::f32)};
        return grouped.function()(builder, computed);
      },
      {{{23, 3}}, {{2, 4, 3}}}, {.fixed = {{"offsets", grouped.offsets()}}});
  const auto once = grouped.run({});
  std::vector<double> expected = once.gradients[1];
  for (double& entry : expected) entry *= 2;
  testing::expect_close(twice.gradients[1], expected, {1e-6, 0}, "weight gradient");
}

/// Every fast kernel on rows of which one expert's and all unused ones are NaN.
template <typename T>
void expect_nan_to_stay(DType dtype) {
  const GroupedCase grouped{.rows_of_expert = {5, 7, 20}, .in = 8, .outs = {16}, .unused = 9};
  SmallProgram small;
  Tensor x = testing::random_tensor({grouped.rows(), 8}, dtype, "x");
  Tensor dy = testing::random_tensor({grouped.rows(), 16}, dtype, "dy");
  const auto spoil = [](const Tensor& rows) {
    for (T& entry : rows.values<T>()) entry = T(std::numeric_limits<float>::quiet_NaN());
  };
  for (const Tensor& rows : {x, dy}) {
    spoil(rows.slice(5, 12));
    spoil(rows.slice(32, 41));
  }
  Builder& builder = small.builder();
  const Value weights[] = {small.input(testing::random_tensor({3, 16, 8}, dtype, "w"))};
  const Value offsets = small.input(grouped.offsets());
  const Value rows = small.input(x);
  const Value gradients[] = {small.input(dy)};
  const Value y = grouped_linear(builder, rows, weights, offsets)[0];
  const Value dx = grouped_linear_input_gradient(builder, gradients, weights, offsets, rows);
  const Value dw = grouped_linear_weight_gradient(builder, rows, gradients[0], offsets, weights[0]);
  small.run({y, dx, dw});
  for (const auto& [value, width] : {std::pair{y, 16}, std::pair{dx, 8}}) {
    const std::vector<T> result = small.read<T>(value);
    for (size_t i = 0; i < result.size(); ++i) {
      const auto row = static_cast<int>(i) / width;
      if (row >= 32) continue;  // unused
      EXPECT_EQ(std::isnan(static_cast<float>(result[i])), row >= 5 && row < 12) << "row " << row;
    }
  }
  const std::vector<float> gradient = small.read<float>(dw);
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_EQ(std::isnan(gradient[i]), i / (16 * 8) == 1) << "expert " << i / (16 * 8);
  }
}

TEST(GroupedLinear, ExpertsDoNotSeeEachOthersNumbers) {
  expect_nan_to_stay<float>(DType::f32);
  expect_nan_to_stay<BFloat16>(DType::bf16);
}

TEST(GroupedLinear, CountsTheRoutedRows) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{40, 8}, DType::f32, {}});
  const Value offsets = builder.input("offsets", {{4}, DType::i32, {}});
  const Value weights[] = {builder.parameter("gate", {{3, 16, 8}, DType::f32, {}}),
                           builder.parameter("up", {{3, 16, 8}, DType::f32, {}})};
  grouped_linear(builder, x, weights, offsets);
  const Node& node = program.nodes().back();
  EXPECT_EQ(node.operation->cost(program.specs(node.inputs), program.specs(node.outputs)).flops,
            2.0 * 2 * 40 * 16 * 8);
}

TEST(GroupedLinear, RefusesShapesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const auto input = [&](const std::string& name, const Shape& shape, DType dtype) {
    return builder.input(name, {shape, dtype, {}});
  };
  const Value x = input("x", {4, 3}, DType::f32);
  const Value offsets = input("offsets", {3}, DType::i32);
  const Value few = input("few", {2}, DType::i32);
  const std::vector<Value> weights{input("weight", {2, 5, 3}, DType::f32)};
  const std::vector<Value> wide{input("wide", {2, 5, 4}, DType::f32)};
  const std::vector<Value> narrow{input("narrow", {2, 5, 3}, DType::bf16)};
  EXPECT_NO_THROW(grouped_linear(builder, x, weights, offsets));
  EXPECT_THROW(grouped_linear(builder, x, weights, few), InternalError);
  EXPECT_THROW(grouped_linear(builder, x, wide, offsets), InternalError);
  EXPECT_THROW(grouped_linear(builder, x, narrow, offsets), InternalError);
  EXPECT_THROW(grouped_linear(builder, x, {}, offsets), InternalError);
}

}  // namespace
}  // namespace tessera
