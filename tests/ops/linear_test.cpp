#include "ops/linear/linear.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/host_target.h"
#include "support/emulated.h"
#include "support/gradient_check.h"
#include "support/larger.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::check_gradients;

TEST(Linear, GradientsAgreeWithFiniteDifferences) {
  for (const int64_t tokens : {1, 5}) {
    check_gradients(
        [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {linear(builder, in[0], in[1])};
        },
        {{tokens, 3}, {4, 3}});
  }
}

TEST(Linear, SeveralWeightsShareOneInputGradient) {
  check_gradients([](Builder& builder,
                     std::span<const Value> in) { return linears(builder, in[0], in.subspan(1)); },
                  {{6, 3}, {4, 3}, {2, 3}, {5, 3}});
}

TEST(Linear, AValueUsedTwiceGetsTheSumOfItsGradients) {
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value first = linear(builder, in[0], in[1]);
        return {linear(builder, first, in[1]), linear(builder, first, in[2])};
      },
      {{3, 4}, {4, 4}, {2, 4}});
}

std::vector<Value> three_linears(Builder& builder, std::span<const Value> in) {
  return linears(builder, in[0], in.subspan(1));
}

/// The largest difference over the largest entry, of any output or gradient.
double difference(const testing::RunResult& actual, const testing::RunResult& expected) {
  double worst = 0;
  const auto compare = [&](const auto& actual_group, const auto& expected_group) {
    for (size_t i = 0; i < expected_group.size(); ++i) {
      double largest = 1e-3, error = 0;
      for (size_t k = 0; k < expected_group[i].size(); ++k) {
        largest = std::max(largest, std::abs(expected_group[i][k]));
        error = testing::larger(error, std::abs(actual_group[i][k] - expected_group[i][k]));
      }
      worst = testing::larger(worst, error / largest);
    }
  };
  compare(actual.outputs, expected.outputs);
  compare(actual.gradients, expected.gradients);
  return worst;
}

RC_GTEST_PROP(Linear, FastAgreesWithPlain, ()) {
  // Up to four chunks of rows of the summed input gradient and a rest; with few and with many rows
  // of A in each product, whose B is laid out for many.
  const auto tokens = *rc::gen::inRange<int64_t>(1, 1100);
  const auto size = [] { return *rc::gen::inRange<int64_t>(1, 40); };
  const int64_t in = size();
  const int64_t large = *rc::gen::element<int64_t>(0, 520);
  const std::vector<testing::RunInput> inputs{
      {{tokens, in}}, {{large + size(), in}}, {{size(), in}}, {{size(), in}}};
  const auto run = [&](DType dtype, Kernels kernels, int threads) {
    return testing::run_program(
        three_linears, inputs,
        {.dtype = dtype, .kernels = kernels, .threads = threads, .inputs_fit_bf16 = true});
  };
  const auto exact = run(DType::f64, Kernels::plain, 1);
  RC_ASSERT(difference(run(DType::f32, Kernels::fast, 2), exact) < 1e-5);
  // Inputs and seeds are exact in bf16 and sums are f32: each result is rounded once, by half an
  // ulp of 2^-8 relative at most.
  RC_ASSERT(difference(run(DType::bf16, Kernels::fast, 2), exact) < 1.0 / 256 + 1e-5);
}

RC_GTEST_PROP(Linear, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  const auto size = [&] { return testing::product_size(*rc::gen::inRange<int64_t>(1, 40), dtype); };
  const int64_t in = size();
  const std::vector<testing::RunInput> inputs{
      {{*rc::gen::inRange<int64_t>(1, 300), in}}, {{size(), in}}, {{size(), in}}, {{size(), in}}};
  testing::expect_device_agrees(three_linears, inputs, {.dtype = dtype, .inputs_fit_bf16 = true});
}

/// Fewer rows than 1024: oneDNN may sum a product over more of them in as many parts as it has
/// threads (docs/architecture.md, Numbers).
TEST(Linear, BitsDoNotDependOnTheThreads) {
  if (!rows_keep_their_bits(host_target(1))) GTEST_SKIP() << testing::kBitsChange;
  // Products whose B is laid out and such that take it as it lies; sums of input gradients in
  // chunks of rows and a rest, wide enough to be rounded by eight threads.
  const std::vector<std::vector<testing::RunInput>> cases{
      {{{603, 521}}, {{17, 521}}, {{33, 521}}, {{65, 521}}},
      {{{603, 40}}, {{531, 40}}, {{7, 40}}, {{1, 40}}}};
  for (const auto& inputs : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      testing::expect_same_bits_on_any_threads(
          [&](Kernels kernels, int threads) {
            return testing::bits_of(testing::run_program(
                three_linears, inputs, {.dtype = dtype, .kernels = kernels, .threads = threads}));
          },
          testing::of_products());
    }
  }
}

/// A router's product, whose result is wider than its operands, and a weight that is computed,
/// whose gradient is a value of its own.
TEST(Linear, BitsOfWideResultsAndComputedWeightsDoNotDependOnTheThreads) {
  if (!rows_keep_their_bits(host_target(1))) GTEST_SKIP() << testing::kBitsChange;
  const auto function = [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
    const Value doubled = scale(builder, in[2], 2);
    return {linear(builder, in[0], in[1], DType::f32), linear(builder, in[0], doubled)};
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(
              testing::run_program(function, {{{603, 129}}, {{9, 129}}, {{31, 129}}},
                                   {.dtype = dtype, .kernels = kernels, .threads = threads}));
        },
        testing::of_products());
  }
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 3}, DType::f32, {}});
  const Value weight = builder.parameter("weight", {{2, 5}, DType::f32, {}});
  const Value narrow = builder.parameter("narrow", {{2, 3}, DType::bf16, {}});
  EXPECT_THROW(linear(builder, x, weight), InternalError);
  EXPECT_THROW(linear(builder, x, narrow), InternalError);
}

}  // namespace
}  // namespace tessera
