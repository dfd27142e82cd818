#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/moe/token_rows.h"
#include "ops/moe_program.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::kBFloat16Rounding;
using testing::SmallProgram;

/// Tokens whose choices have rows in a shuffled order; every `drop`-th choice has none.
struct RowsCase {
  int64_t tokens = 1;
  int64_t k = 1;
  int64_t width = 1;
  int64_t drop = 0;

  int64_t rows() const { return tokens * k; }

  testing::FixedInputs indices() const {
    const Tensor input({rows()}, DType::i32);
    const Tensor output({tokens, k}, DType::i32);
    std::ranges::fill(input.values<int32_t>(), -1);
    std::vector<int32_t> kept;
    for (int64_t i = 0; i < rows(); ++i) {
      output.data<int32_t>()[i] = -1;
      if (drop == 0 || i % drop != drop - 1) kept.push_back(static_cast<int32_t>(i));
    }
    const Permutation order(std::max<size_t>(kept.size(), 1), 5);
    for (size_t i = 0; i < kept.size(); ++i) {
      const auto row = static_cast<int32_t>(order(i));
      output.data<int32_t>()[kept[i]] = row;
      input.data<int32_t>()[row] = static_cast<int32_t>(kept[i] / k);
    }
    return {{"input_indices", input}, {"output_indices", output}};
  }

  TokenIndices declare(Builder& builder) const {
    return {builder.input("input_indices", {{rows()}, DType::i32, {}}),
            builder.input("output_indices", {{tokens, k}, DType::i32, {}})};
  }
  testing::ProgramFunction gather() const {
    return [*this](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      return {gather_tokens(builder, in[0], declare(builder))};
    };
  }
  testing::ProgramFunction reduce() const {
    return [*this](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      return {reduce_experts(builder, in[0], in[1], declare(builder))};
    };
  }
  testing::RunResult run_gather(testing::RunOptions options) const {
    options.fixed = indices();
    options.unused_rows = true;
    return testing::run_program(gather(), {{{tokens, width}}}, options);
  }
  testing::RunResult run_reduce(testing::RunOptions options) const {
    options.fixed = indices();
    options.unused_rows = true;
    return testing::run_program(reduce(), {{{rows(), width}}, {{tokens, k}, true}}, options);
  }
};

RowsCase random_rows_case() {
  return {.tokens = *rc::gen::inRange<int64_t>(1, 20),
          .k = *rc::gen::inRange<int64_t>(1, 9),
          .width = *rc::gen::element<int64_t>(1, 7, 16, 33, 130, 1023, 1025),
          .drop = *rc::gen::element<int64_t>(0, 1, 2, 5)};
}

const RowsCase kSmallCases[] = {{},
                                {.tokens = 5, .k = 3, .width = 4, .drop = 4},
                                {.tokens = 3, .k = 2, .width = 2, .drop = 1},
                                {.tokens = 2, .k = 4, .width = 3},
                                {.tokens = 1, .k = 2, .width = 1025}};

TEST(GatherTokens, GradientAgreesWithFiniteDifferences) {
  for (const RowsCase& rows : kSmallCases) {
    check_gradients(rows.gather(), {{rows.tokens, rows.width}}, [&]() { return rows.indices(); });
  }
}

TEST(ReduceExperts, GradientsAgreeWithFiniteDifferences) {
  for (const RowsCase& rows : kSmallCases) {
    check_gradients(rows.reduce(), {{rows.rows(), rows.width}, {rows.tokens, rows.k}},
                    [&]() { return rows.indices(); });
  }
}

std::vector<std::optional<testing::Emulation>> host_and_devices() {
  std::vector<std::optional<testing::Emulation>> all{std::nullopt};
  for (const testing::Emulation& device : testing::every_device()) all.emplace_back(device);
  return all;
}

TEST(GatherTokens, CopiesTokensOnHostAndDevices) {
  for (const auto& emulation : host_and_devices()) {
    SmallProgram small(2, Kernels::fast, emulation);
    const Value x = small.input<float>({2, 2}, {1, 2, 3, 4});
    const TokenIndices indices{small.input<int32_t>({4}, {1, 0, 1, -1}),
                               small.input<int32_t>({2, 2}, {1, -1, 0, 2})};
    const Value rows = gather_tokens(small.builder(), x, indices);
    small.run({rows});
    std::vector<float> used = small.read<float>(rows);
    used.resize(3 * 2);
    EXPECT_EQ(used, (std::vector<float>{3, 4, 1, 2, 3, 4}));
  }
}

TEST(ReduceExperts, SumsTheChoicesThatHaveARowOnHostAndDevices) {
  for (const auto& emulation : host_and_devices()) {
    SmallProgram small(2, Kernels::fast, emulation);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Value rows = small.input<float>({4, 2}, {1, 2, 3, 4, 5, 6, nan, nan});
    const Value weights = small.input<float>({2, 2}, {10, nan, 100, 1000});
    const TokenIndices indices{small.input<int32_t>({4}, {1, 0, 1, -1}),
                               small.input<int32_t>({2, 2}, {1, -1, 0, 2})};
    const Value sums = reduce_experts(small.builder(), rows, weights, indices);
    small.run({sums});
    EXPECT_EQ(small.read<float>(sums), (std::vector<float>{30, 40, 5100, 6200}));
  }
}

RC_GTEST_PROP(GatherTokens, SinglePrecisionAgreesWithDouble, ()) {
  const RowsCase rows = random_rows_case();
  testing::expect_close(rows.run_gather({.inputs_fit_bf16 = true}),
                        rows.run_gather({.dtype = DType::f64, .inputs_fit_bf16 = true}), {0, 1e-6});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(ReduceExperts, SinglePrecisionAgreesWithDouble, ()) {
  const RowsCase rows = random_rows_case();
  testing::expect_close(rows.run_reduce({.inputs_fit_bf16 = true}),
                        rows.run_reduce({.dtype = DType::f64, .inputs_fit_bf16 = true}), {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(GatherTokens, BFloat16RoundsOnce, ()) {
  const RowsCase rows = random_rows_case();
  const auto actual = rows.run_gather({.dtype = DType::bf16, .inputs_fit_bf16 = true});
  const auto expected = rows.run_gather({.dtype = DType::f64, .inputs_fit_bf16 = true});
  EXPECT_EQ(actual.outputs, expected.outputs);  // copies are exact
  // The sum of k gradients is rounded once; 1e-6 for the order of the f32 sum.
  testing::expect_close(actual.gradients[0], expected.gradients[0], {kBFloat16Rounding, 1e-6},
                        "gradient");
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(ReduceExperts, BFloat16RoundsOnce, ()) {
  const RowsCase rows = random_rows_case();
  const auto actual = rows.run_reduce({.dtype = DType::bf16, .inputs_fit_bf16 = true});
  const auto expected = rows.run_reduce({.dtype = DType::f64, .inputs_fit_bf16 = true});
  testing::expect_close(actual.outputs[0], expected.outputs[0], {kBFloat16Rounding, 1e-6},
                        "output");
  testing::expect_close(actual.gradients[0], expected.gradients[0], {kBFloat16Rounding, 1e-6},
                        "gradient of the rows");
  // Dot products of exact bf16 numbers in f32: no rounding to bf16.
  testing::expect_close(actual.gradients[1], expected.gradients[1], {0, 1e-5},
                        "gradient of the weights");
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(TokenRows, BitsDoNotDependOnTheThreads) {
  const RowsCase rows{.tokens = 301, .k = 5, .width = 130, .drop = 7};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto run : {&RowsCase::run_gather, &RowsCase::run_reduce}) {
      testing::expect_same_bits_on_any_threads(
          [&](Kernels kernels, int threads) {
            return testing::bits_of(
                (rows.*run)({.dtype = dtype, .kernels = kernels, .threads = threads}));
          },
          testing::FastKernel::same_bits);
    }
  }
}

RowsCase random_device_case() {
  RowsCase rows = random_rows_case();
  if (*rc::gen::arbitrary<bool>()) rows.width = *rc::gen::element(8, 64, 520, 2048);
  return rows;
}

RC_GTEST_PROP(GatherTokens, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const RowsCase rows = random_device_case();
  testing::expect_device_agrees(rows.gather(), {{{rows.tokens, rows.width}}},
                                {.dtype = *rc::gen::element(DType::f32, DType::bf16),
                                 .unused_rows = true,
                                 .fixed = rows.indices()});
}

RC_GTEST_PROP(ReduceExperts, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const RowsCase rows = random_device_case();
  // The gradient takes the memory of rows that were computed.
  const auto reduce = [&](Builder& builder, std::span<const Value> in) {
    const Value operands[] = {scale(builder, in[0], 0.5), in[1]};
    return rows.reduce()(builder, operands);
  };
  testing::expect_device_agrees(reduce,
                                {{{rows.rows(), rows.width}}, {{rows.tokens, rows.k}, true}},
                                {.dtype = *rc::gen::element(DType::f32, DType::bf16),
                                 .unused_rows = true,
                                 .fixed = rows.indices()});
}

TEST(TokenRows, RefuseShapesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 3}, DType::bf16, {}});
  const Value rows = builder.input("rows", {{8, 3}, DType::bf16, {}});
  const Value weights = builder.input("weights", {{4, 2}, DType::f32, {}});
  const Value narrow = builder.input("narrow", {{4, 2}, DType::bf16, {}});
  const Value input_indices = builder.input("input", {{8}, DType::i32, {}});
  const Value output_indices = builder.input("output", {{4, 2}, DType::i32, {}});
  const Value other = builder.input("other", {{5, 2}, DType::i32, {}});
  EXPECT_NO_THROW(gather_tokens(builder, x, {input_indices, output_indices}));
  EXPECT_THROW(gather_tokens(builder, x, {input_indices, other}), InternalError);
  EXPECT_NO_THROW(reduce_experts(builder, rows, weights, {input_indices, output_indices}));
  EXPECT_THROW(reduce_experts(builder, rows, narrow, {input_indices, output_indices}),
               InternalError);
  EXPECT_THROW(reduce_experts(builder, x, weights, {input_indices, output_indices}), InternalError);
}

}  // namespace
}  // namespace tessera
