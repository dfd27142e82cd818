#include "ops/router/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/moe_program.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::SmallProgram;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void make_positive(std::vector<Tensor>& inputs) {
  for (double& entry : inputs[0].values<double>()) entry = std::abs(entry) + 0.1;
}

std::vector<Value> softmax_of(Builder& builder, std::span<const Value> in) {
  return {router_softmax(builder, in[0])};
}

testing::RunResult run_softmax(const Shape& shape, const testing::RunOptions& options) {
  return testing::run_program(softmax_of, {{shape}}, options);
}

/// A matrix of routers for the kernels of devices: packed and odd rows, narrow and wider than a
/// warp.
Shape random_device_shape() {
  const auto experts = *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 100),
                                       rc::gen::element<int64_t>(8, 64, 160, 300, 512));
  return {*rc::gen::inRange<int64_t>(1, 60), experts};
}

TEST(RouterSoftmax, GradientAgreesWithFiniteDifferences) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{2, 17}}) {
    check_gradients(
        [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {router_softmax(builder, in[0])};
        },
        {shape});
  }
}

RC_GTEST_PROP(RouterSoftmax, FastAgreesWithPlain, ()) {
  const Shape shape{*rc::gen::inRange<int64_t>(1, 40), *rc::gen::inRange<int64_t>(1, 70)};
  testing::expect_close(run_softmax(shape, {.kernels = Kernels::fast}),
                        run_softmax(shape, {.kernels = Kernels::plain}), {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(RouterSoftmax, RowsAddUpToOneHoweverLargeTheLogits) {
  SmallProgram small;
  const Value logits = small.input<float>({2, 3}, {1e4F, -1e4F, 1e4F, -300, -301, -1e30F});
  const Value probabilities = router_softmax(small.builder(), logits);
  small.run({probabilities});
  const auto p = small.read<float>(probabilities);
  EXPECT_FLOAT_EQ(p[0], 0.5F);
  EXPECT_FLOAT_EQ(p[1], 0.0F);
  EXPECT_NEAR(p[3], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(p[3] + p[4] + p[5], 1, 1e-6);
}

TEST(RouterSoftmax, BitsDoNotDependOnTheThreads) {
  testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
    return testing::bits_of(run_softmax({6001, 23}, {.kernels = kernels, .threads = threads}));
  });
}

TEST(RouterSoftmax, RefusesOtherThanWideMatrices) {
  Program program;
  Builder builder(program);
  EXPECT_THROW(router_softmax(builder, builder.input("narrow", {{4, 3}, DType::bf16, {}})),
               InternalError);
  EXPECT_THROW(router_softmax(builder, builder.input("flat", {{4}, DType::f32, {}})),
               InternalError);
}

RC_GTEST_PROP(RouterSoftmax, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  testing::expect_device_agrees(softmax_of, {{random_device_shape()}}, {});
}

struct Choice {
  std::vector<float> weights;
  std::vector<int32_t> indices;
};

Choice choose(const Shape& shape, const std::vector<float>& probabilities,
              const TopKOptions& options, int threads = 2, Kernels kernels = Kernels::fast,
              const std::optional<testing::Emulation>& emulation = {}) {
  SmallProgram small(threads, kernels, emulation);
  const RouterSelection selection =
      router_top_k(small.builder(), small.input<float>(shape, probabilities), options);
  small.run({selection.weights, selection.indices});
  return {small.read<float>(selection.weights), small.read<int32_t>(selection.indices)};
}

TEST(RouterTopK, GradientAgreesWithFiniteDifferences) {
  for (const bool renormalise : {false, true}) {
    for (const bool forced : {false, true}) {
      for (const int64_t k : {1, 2, 5}) {
        check_gradients(
            [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
              return {router_top_k(builder, in[0],
                                   {.k = k, .renormalise = renormalise, .forced_uniform = forced})
                          .weights};
            },
            {{4, 5}}, nullptr, {}, make_positive);
      }
    }
  }
}

TEST(RouterTopK, EqualsGoToTheLowerIndex) {
  const Choice choice =
      choose({2, 5}, {0.2F, 0.2F, 0.2F, 0.2F, 0.2F, 0.1F, 0.3F, 0.1F, 0.3F, 0.2F}, {.k = 3});
  EXPECT_EQ(choice.indices, (std::vector<int32_t>{0, 1, 2, 1, 3, 4}));
  EXPECT_EQ(choice.weights, (std::vector<float>{0.2F, 0.2F, 0.2F, 0.3F, 0.3F, 0.2F}));
}

TEST(RouterTopK, NansRankLast) {
  EXPECT_EQ(choose({1, 4}, {kNan, 0.1F, kNan, 0.3F}, {.k = 3}).indices,
            (std::vector<int32_t>{3, 1, 0}));
  EXPECT_EQ(choose({1, 3}, {kNan, kNan, kNan}, {.k = 2}).indices, (std::vector<int32_t>{0, 1}));
}

TEST(RouterTopK, RenormalisedWeightsAddUpToOne) {
  const Choice choice = choose({1, 4}, {0.1F, 0.5F, 0.1F, 0.3F}, {.k = 2, .renormalise = true});
  EXPECT_FLOAT_EQ(choice.weights[0], 0.625F);
  EXPECT_FLOAT_EQ(choice.weights[1], 0.375F);
}

TEST(RouterTopK, ForcedUniformRoutingTakesTheExpertsInTurn) {
  const Choice choice =
      choose({3, 4}, {0.1F, 0.5F, 0.1F, 0.3F, 0.1F, 0.5F, 0.1F, 0.3F, 0.1F, 0.5F, 0.1F, 0.3F},
             {.k = 3, .forced_uniform = true});
  EXPECT_EQ(choice.indices, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0}));
  EXPECT_EQ(choice.weights,
            (std::vector<float>{0.1F, 0.5F, 0.1F, 0.3F, 0.1F, 0.5F, 0.1F, 0.3F, 0.1F}));
}

/// Pinned choices [4, 2] of 5 experts, none of which need be the most probable ones.
Value pinned_choices(Builder& builder) { return builder.input("pinned", {{4, 2}, DType::i32, {}}); }

void expect_pinned_choices(const std::optional<testing::Emulation>& device) {
  for (const bool renormalise : {false, true}) {
    SmallProgram small(2, Kernels::fast, device);
    const Value probabilities = small.input<float>({2, 3}, {0.1F, 0.3F, 0.6F, 0.5F, 0.4F, 0.1F});
    const Value pinned = small.input<int32_t>({2, 2}, {0, 1, 2, 0});
    const RouterSelection selection =
        router_top_k(small.builder(), probabilities, {.k = 2, .renormalise = renormalise}, pinned);
    small.run({selection.weights, selection.indices});
    EXPECT_EQ(small.read<int32_t>(selection.indices), (std::vector<int32_t>{0, 1, 2, 0}));
    const std::vector<float> weights = small.read<float>(selection.weights);
    const float first = renormalise ? 0.4F : 1, second = renormalise ? 0.6F : 1;
    EXPECT_FLOAT_EQ(weights[0], 0.1F / first);
    EXPECT_FLOAT_EQ(weights[1], 0.3F / first);
    EXPECT_FLOAT_EQ(weights[2], 0.1F / second);
    EXPECT_FLOAT_EQ(weights[3], 0.5F / second);
  }
}

TEST(RouterTopK, PinnedChoicesAreTakenAndWeighedByTheirProbabilities) {
  expect_pinned_choices(std::nullopt);
}

TEST(RouterTopK, TheDevicesKernelsTakePinnedChoices) {
  for (const testing::Emulation& device : testing::every_device()) {
    SCOPED_TRACE(testing::describe(device));
    expect_pinned_choices(device);
  }
}

TEST(RouterTopK, GradientOfPinnedChoicesAgreesWithFiniteDifferences) {
  for (const bool renormalise : {false, true}) {
    check_gradients(
        [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {router_top_k(builder, in[0], {.k = 2, .renormalise = renormalise},
                               pinned_choices(builder))
                      .weights};
        },
        {{4, 5}},
        [] {
          Tensor choices({4, 2}, DType::i32);
          std::ranges::copy(std::vector<int32_t>{4, 0, 1, 2, 3, 1, 0, 2},
                            choices.values<int32_t>().begin());
          return testing::FixedInputs{{"pinned", choices}};
        },
        {}, make_positive);
  }
}

TEST(RouterTopK, PinnedChoicesMustBeOfTheSameTokens) {
  Program program;
  Builder builder(program);
  const Value probabilities = builder.input("probabilities", {{4, 5}, DType::f32, {}});
  EXPECT_THROW(router_top_k(builder, probabilities, {.k = 3}, pinned_choices(builder)),
               InternalError);
}

RC_GTEST_PROP(RouterTopK, ChoosesLikeAStableSort, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 30);
  const auto experts = *rc::gen::inRange<int64_t>(1, 40);
  const auto k = *rc::gen::inRange<int64_t>(1, experts + 1);
  // Few different values, so that there are ties.
  const auto levels = *rc::gen::container<std::vector<int>>(static_cast<size_t>(tokens * experts),
                                                            rc::gen::inRange(0, 6));
  const std::vector<float> probabilities(levels.begin(), levels.end());
  const Choice choice = choose({tokens, experts}, probabilities, {.k = k});
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](int32_t e) {
      return probabilities[static_cast<size_t>(t * experts + e)];
    });
    for (int64_t j = 0; j < k; ++j) {
      RC_ASSERT(choice.indices[static_cast<size_t>(t * k + j)] == order[static_cast<size_t>(j)]);
    }
  }
}

TEST(RouterTopK, BitsDoNotDependOnTheThreads) {
  const Shape shape{3001, 23};
  const TopKOptions options{.k = 4, .renormalise = true};
  std::vector<float> probabilities;
  const CounterRandom random(3, "probabilities");
  for (int64_t i = 0; i < shape.elements(); ++i) {
    probabilities.push_back(static_cast<float>(random.uniform(static_cast<uint64_t>(i))));
  }
  testing::expect_same_bits_on_any_threads(
      [&](Kernels kernels, int threads) {
        const Choice choice = choose(shape, probabilities, options, threads, kernels);
        return testing::bits_of(choice.weights, choice.indices);
      },
      testing::FastKernel::same_bits);
  // The weights' gradient: its tokens choose among random numbers of either sign.
  testing::expect_same_bits_on_any_threads(
      [&](Kernels kernels, int threads) {
        return testing::bits_of(testing::run_program(
            [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
              return {router_top_k(builder, in[0], options).weights};
            },
            {{shape}}, {.kernels = kernels, .threads = threads}));
      },
      testing::FastKernel::same_bits);
}

TopKOptions random_top_k(int64_t experts) {
  return {.k = *rc::gen::inRange<int64_t>(1, std::min<int64_t>(experts, 9) + 1),
          .renormalise = *rc::gen::arbitrary<bool>(),
          .forced_uniform = *rc::gen::inRange(0, 4) == 0};
}

RC_GTEST_PROP(RouterTopK, TheDevicesKernelsChooseLikeThePlainOnes, ()) {
  const Shape shape = random_device_shape();
  TopKOptions options = random_top_k(shape[1]);
  if (*rc::gen::inRange(0, 8) == 0) options.k = std::min<int64_t>(shape[1], 40);
  // Few different values, so that there are ties; some are no numbers and some infinite.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float levels[] = {0.5F, 0.25F, 0.125F, 0.0F, -0.0F, -1.0F, 1e-30F, 0.25F};
  const bool odd_values = *rc::gen::arbitrary<bool>() && !options.renormalise;
  const CounterRandom random(*rc::gen::arbitrary<uint64_t>(), "levels");
  std::vector<float> probabilities;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const uint64_t draw = random.bits(static_cast<uint64_t>(i)) % 64;
    float value = levels[draw % 8];
    if (odd_values && draw >= 48) value = draw < 60 ? -kInfinity : kInfinity;
    probabilities.push_back(value);
  }
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& emulation) {
    const Choice choice = choose(shape, probabilities, options, 1, Kernels::plain, emulation);
    return testing::bits_of(choice.weights, choice.indices);
  });
}

RC_GTEST_PROP(RouterTopK, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const Shape shape = random_device_shape();
  const TopKOptions options = random_top_k(shape[1]);
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {router_top_k(builder, in[0], options).weights};
      },
      {{shape}}, {});
}

TEST(RouterTopK, TheDevicesKernelsRankNansLast) {
  for (const testing::Emulation& device : testing::every_device()) {
    const auto chosen = [&](const Shape& shape, const std::vector<float>& probabilities) {
      return choose(shape, probabilities, {.k = 3}, 1, Kernels::fast, device).indices;
    };
    EXPECT_EQ(chosen({1, 4}, {kNan, 0.1F, kNan, 0.3F}), (std::vector<int32_t>{3, 1, 0}));
    EXPECT_EQ(chosen({1, 3}, {kNan, kNan, kNan}), (std::vector<int32_t>{0, 1, 2}));
  }
}

TEST(RouterTopK, RefusesMoreExpertsThanThereAre) {
  Program program;
  Builder builder(program);
  const Value probabilities = builder.input("probabilities", {{4, 3}, DType::f32, {}});
  EXPECT_THROW(router_top_k(builder, probabilities, {.k = 4}), InternalError);
  EXPECT_THROW(router_top_k(builder, probabilities, {.k = 0}), InternalError);
}

}  // namespace
}  // namespace tessera
