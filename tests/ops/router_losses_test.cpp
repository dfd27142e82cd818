#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/moe_program.h"
#include "ops/router/losses.h"
#include "ops/router/router.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::SmallProgram;

/// The loss of layers of one shape, from probabilities and counts as they stand.
double balance_loss(const Shape& shape, const std::vector<std::vector<double>>& probabilities,
                    const std::vector<std::vector<int32_t>>& counts, double coefficient, int64_t k,
                    BalanceForm form) {
  SmallProgram small;
  std::vector<Value> p;
  std::vector<Value> c;
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    p.push_back(small.input<double>(shape, probabilities[layer]));
    c.push_back(small.input<int32_t>({shape[1]}, counts[layer]));
  }
  const Value loss = load_balance_loss(small.builder(), p, c, coefficient, k, form);
  small.run({loss});
  return small.read<double>(loss)[0];
}

TEST(LoadBalanceLoss, BalanceGivesTheCoefficientATokenAndLayer) {
  const int64_t tokens = 600;
  const int64_t experts = 8;
  const int64_t k = 2;
  const std::vector<double> even(static_cast<size_t>(tokens * experts), 1.0 / 8);
  const std::vector<int32_t> counts(8, tokens * k / experts);
  EXPECT_NEAR(balance_loss({tokens, experts}, {even}, {counts}, 0.01, k, BalanceForm::per_layer),
              0.01 * tokens, 1e-12 * tokens);
  EXPECT_NEAR(balance_loss({tokens, experts}, {even, even, even}, {counts, counts, counts}, 0.01, k,
                           BalanceForm::pooled),
              0.01 * k * tokens, 1e-12 * tokens);
}

TEST(LoadBalanceLoss, OneExpertForAllGivesItsMultiple) {
  std::vector<double> probabilities(static_cast<size_t>(5 * 4), 0.0);
  for (size_t t = 0; t < 5; ++t) probabilities[t * 4 + 2] = 1;
  EXPECT_NEAR(
      balance_loss({5, 4}, {probabilities}, {{0, 0, 5, 0}}, 0.01, 1, BalanceForm::per_layer),
      0.01 * 4 * 5, 1e-14);
}

TEST(LoadBalanceLoss, PoolingLetsLayersBalanceEachOther) {
  // Each layer uses one expert of two; together they are even.
  const std::vector<double> first{1, 0, 1, 0};
  const std::vector<double> second{0, 1, 0, 1};
  EXPECT_NEAR(balance_loss({2, 2}, {first, second}, {{2, 0}, {0, 2}}, 1, 1, BalanceForm::pooled),
              1.0 * 2, 1e-14);
  EXPECT_NEAR(balance_loss({2, 2}, {first}, {{2, 0}}, 1, 1, BalanceForm::per_layer), 2.0 * 2,
              1e-14);
}

RC_GTEST_PROP(LoadBalanceLoss, EqualsItsFormula, ()) {
  const bool pooled = *rc::gen::arbitrary<bool>();
  const auto layers = pooled ? *rc::gen::inRange<size_t>(1, 5) : size_t{1};
  const auto tokens = *rc::gen::inRange<int64_t>(1, 60);
  const auto experts = *rc::gen::inRange<int64_t>(1, 40);
  const auto k = *rc::gen::inRange<int64_t>(1, experts + 1);
  std::vector<std::vector<double>> probabilities(layers);
  std::vector<std::vector<int32_t>> counts(layers);
  const CounterRandom random(*rc::gen::arbitrary<uint64_t>(), "balance");
  uint64_t draw = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    for (int64_t i = 0; i < tokens * experts; ++i) {
      probabilities[layer].push_back(random.uniform(draw++));
    }
    for (int64_t e = 0; e < experts; ++e) {
      counts[layer].push_back(static_cast<int32_t>(random.bits(draw++) % 100));
    }
  }
  const double all_tokens = static_cast<double>(tokens) * static_cast<double>(layers);
  double sum = 0;
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    double share = 0;
    double probability = 0;
    for (size_t layer = 0; layer < layers; ++layer) {
      share += counts[layer][e];
      for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
        probability += probabilities[layer][t * static_cast<size_t>(experts) + e];
      }
    }
    sum += share / all_tokens * (probability / all_tokens);
  }
  const double mean =
      0.3 * static_cast<double>(experts) / static_cast<double>(pooled ? 1 : k) * sum;
  const double loss = balance_loss({tokens, experts}, probabilities, counts, 0.3, k,
                                   pooled ? BalanceForm::pooled : BalanceForm::per_layer);
  const double expected = mean * static_cast<double>(tokens);
  RC_ASSERT(std::abs(loss - expected) <= 1e-12 * expected);
}

std::vector<Value> random_counts(Builder& builder, size_t layers, int64_t experts) {
  std::vector<Value> counts;
  for (size_t layer = 0; layer < layers; ++layer) {
    counts.push_back(builder.input("counts" + std::to_string(layer), {{experts}, DType::i32, {}}));
  }
  return counts;
}

testing::FixedInputs count_tensors(size_t layers, int64_t experts) {
  testing::FixedInputs fixed;
  for (size_t layer = 0; layer < layers; ++layer) {
    const Tensor counts({experts}, DType::i32);
    for (int64_t e = 0; e < experts; ++e) {
      counts.data<int32_t>()[e] =
          static_cast<int32_t>((7 * e + 3 * static_cast<int64_t>(layer)) % 5);
    }
    fixed.emplace("counts" + std::to_string(layer), counts);
  }
  return fixed;
}

TEST(LoadBalanceLoss, GradientAgreesWithFiniteDifferences) {
  for (const size_t layers : {1, 3}) {
    check_gradients(
        [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {load_balance_loss(builder, in, random_counts(builder, layers, 4), 0.5, 2,
                                    layers == 1 ? BalanceForm::per_layer : BalanceForm::pooled)};
        },
        std::vector<Shape>(layers, Shape{6, 4}), [=]() { return count_tensors(layers, 4); });
  }
}

testing::RunResult run_balance(const Shape& shape, testing::RunOptions options) {
  options.fixed = count_tensors(2, shape[1]);
  return testing::run_program(
      [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {load_balance_loss(builder, in, random_counts(builder, 2, shape[1]), 0.5, 2,
                                  BalanceForm::pooled)};
      },
      {{shape}, {shape}}, options);
}

TEST(LoadBalanceLoss, SinglePrecisionAgreesWithDouble) {
  for (const Shape& shape : {Shape{1, 1}, Shape{700, 9}}) {
    testing::expect_close(run_balance(shape, {.dtype = DType::f32}),
                          run_balance(shape, {.dtype = DType::f64}), {1e-5, 0});
  }
}

TEST(LoadBalanceLoss, BitsDoNotDependOnTheThreads) {
  testing::expect_same_bits_on_any_threads(
      [&](Kernels kernels, int threads) {
        return testing::bits_of(run_balance({6001, 23}, {.kernels = kernels, .threads = threads}));
      },
      testing::FastKernel::same_bits);
}

RC_GTEST_PROP(LoadBalanceLoss, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const bool pooled = *rc::gen::arbitrary<bool>();
  const auto layers = pooled ? *rc::gen::inRange<size_t>(1, 4) : size_t{1};
  const auto experts =
      *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 40), rc::gen::element<int64_t>(8, 64, 160, 300));
  const Shape shape{*rc::gen::inRange<int64_t>(1, 200), experts};
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        // Positive addends: a random sum that cancels has no digits to compare.
        std::vector<Value> probabilities;
        for (const Value logits : in) probabilities.push_back(router_softmax(builder, logits));
        return {load_balance_loss(builder, probabilities, random_counts(builder, layers, experts),
                                  0.5, 2, pooled ? BalanceForm::pooled : BalanceForm::per_layer)};
      },
      std::vector<testing::RunInput>(layers, {shape}), {.fixed = count_tensors(layers, experts)});
}

TEST(LoadBalanceLoss, RefusesWhatDoesNotFit) {
  Program program;
  Builder builder(program);
  const std::vector<Value> p(2, builder.input("p", {{4, 3}, DType::f32, {}}));
  const std::vector<Value> counts(2, builder.input("counts", {{3}, DType::i32, {}}));
  const std::vector<Value> few(2, builder.input("few", {{2}, DType::i32, {}}));
  EXPECT_THROW(load_balance_loss(builder, p, counts, 1, 1, BalanceForm::per_layer), InternalError);
  EXPECT_THROW(load_balance_loss(builder, p, few, 1, 1, BalanceForm::pooled), InternalError);
  EXPECT_THROW(load_balance_loss(builder, p, std::span(counts).first(1), 1, 1, BalanceForm::pooled),
               InternalError);
}

std::vector<Value> z_loss_of(Builder& builder, std::span<const Value> in) {
  return {router_z_loss(builder, in[0], 0.25)};
}

testing::RunResult run_z_loss(const Shape& shape, const testing::RunOptions& options) {
  return testing::run_program(z_loss_of, {{shape}}, options);
}

TEST(RouterZLoss, IsTheSumOfSquaredLogarithms) {
  SmallProgram small;
  const Value logits = small.input<double>({2, 2}, {0, 0, 1000, -1000});
  const Value loss = router_z_loss(small.builder(), logits, 0.001);
  small.run({loss});
  EXPECT_NEAR(small.read<double>(loss)[0], 0.001 * (std::log(2) * std::log(2) + 1e6), 1e-10);
}

TEST(RouterZLoss, GradientAgreesWithFiniteDifferences) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{2, 17}}) {
    check_gradients(
        [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {router_z_loss(builder, in[0], 0.25)};
        },
        {shape});
  }
}

RC_GTEST_PROP(RouterZLoss, FastAgreesWithPlain, ()) {
  const Shape shape{*rc::gen::inRange<int64_t>(1, 40), *rc::gen::inRange<int64_t>(1, 70)};
  testing::expect_close(run_z_loss(shape, {.kernels = Kernels::fast}),
                        run_z_loss(shape, {.kernels = Kernels::plain}), {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(RouterZLoss, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const auto experts = *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 100),
                                       rc::gen::element<int64_t>(8, 64, 160, 300));
  testing::expect_device_agrees(z_loss_of, {{{*rc::gen::inRange<int64_t>(1, 60), experts}}}, {});
}

TEST(RouterZLoss, TheDevicesKernelsTakeMoreTokensThanBlocks) {
  const Shape shape{131300, 1};  // with a lane a row, 1026 times a block's rows
  const testing::RunResult expected =
      run_z_loss(shape, {.kernels = Kernels::plain, .threads = 1, .backward = false});
  testing::expect_equal_bits_on_devices(
      32,
      [&](const testing::Emulation& device) {
        return run_z_loss(shape, {.backward = false, .emulation = device});
      },
      [&](const testing::RunResult& result) {
        testing::expect_close(result, expected, testing::device_tolerance(DType::f32));
      });
}

TEST(RouterZLoss, BitsDoNotDependOnTheThreads) {
  testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
    return testing::bits_of(run_z_loss({3001, 23}, {.kernels = kernels, .threads = threads}));
  });
}

}  // namespace
}  // namespace tessera
