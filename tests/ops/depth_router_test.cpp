// What ZAYA1's routers have beside those of other families: depth averaging, biased GELU, biased
// choices, biases that balance, and tokens that visit no expert.
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/host_target.h"
#include "ops/moe/skip_class.h"
#include "ops/router/balance_biases.h"
#include "ops/router/router.h"
#include "ops/router/router_network.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::Emulation;
using testing::RunOptions;

testing::ProgramFunction averaged(bool first) {
  return [=](Builder& builder, std::span<const Value> in) {
    const auto given = [&](size_t i) { return first ? std::nullopt : std::optional(in[i]); };
    return std::vector<Value>{depth_average(builder, in[0], in[1], given(2), given(3))};
  };
}

std::vector<testing::RunInput> averaged_inputs(int64_t tokens, int64_t width, bool first) {
  std::vector<testing::RunInput> inputs{{{tokens, width}}, {{width}}};
  if (!first) inputs.insert(inputs.end(), {{{width}}, {{tokens, width}}});
  return inputs;
}

std::vector<Value> gelu_of(Builder& builder, std::span<const Value> in) {
  return {biased_gelu(builder, in[0], in[1])};
}

TEST(DepthRouter, GradientsAgreeWithFiniteDifferences) {
  testing::check_gradients(averaged(true), {{3, 4}, {4}});
  testing::check_gradients(averaged(false), {{3, 4}, {4}, {4}, {3, 4}});
  testing::check_gradients(gelu_of, {{5, 3}, {3}});
}

/// A function of inputs that are given, in f64.
std::vector<double> result_of(const testing::ProgramFunction& function,
                              const std::vector<std::pair<Shape, std::vector<double>>>& given) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  std::vector<Value> inputs;
  for (const auto& [shape, values] : given) {
    inputs.push_back(builder.input(fmt::format("input{}", inputs.size()), {shape, DType::f64, {}}));
  }
  const Value result = function(builder, inputs)[0];
  builder.output(result);
  testing::ProgramRun run(program, runtime);
  for (size_t i = 0; i < given.size(); ++i) {
    const Tensor tensor(given[i].first, DType::f64);
    std::ranges::copy(given[i].second, tensor.data<double>());
    run.bind(inputs[i], tensor);
  }
  run.run();
  return testing::as_doubles(run[result]);
}

TEST(DepthRouter, MatchesNumbersByHand) {
  EXPECT_EQ(
      result_of(
          averaged(false),
          {{{2, 2}, {1, 2, 3, 4}}, {{2}, {10, 20}}, {{2}, {0.5, -1}}, {{2, 2}, {2, 4, 6, 8}}}),
      std::vector<double>({12, 18, 16, 16}));
  EXPECT_EQ(result_of(averaged(true), {{{1, 2}, {1, 2}}, {{2}, {10, 20}}}),
            std::vector<double>({11, 22}));
  // x + bias is 1: gelu(1) = Φ(1) = 0.841344746...
  const auto gelu = result_of(gelu_of, {{{1, 2}, {0.25, -3}}, {{2}, {0.75, 3}}});
  EXPECT_NEAR(gelu[0], (1 + std::erf(1 / std::numbers::sqrt2)) / 2, 1e-15);
  EXPECT_EQ(gelu[1], 0);
}

RC_GTEST_PROP(DepthRouter, FastAgreesWithPlainAndDevices, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 200);
  const auto width = *rc::gen::inRange<int64_t>(1, 90);
  const bool first = *rc::gen::arbitrary<bool>();
  const auto check = [&](const testing::ProgramFunction& function,
                         const std::vector<testing::RunInput>& inputs) {
    testing::expect_close(testing::run_program(function, inputs, {.kernels = Kernels::fast}),
                          testing::run_program(function, inputs, {.kernels = Kernels::plain}),
                          {0, 2e-5});
    testing::expect_device_agrees(function, inputs, {});
  };
  check(averaged(first), averaged_inputs(tokens, width, first));
  check(gelu_of, averaged_inputs(tokens, width, true));
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(DepthRouter, BitsDoNotDependOnTheThreads) {
  testing::expect_same_bits_on_any_threads(
      [&](Kernels kernels, int threads) {
        const RunOptions options{.kernels = kernels, .threads = threads};
        return testing::bits_of(
            testing::run_program(averaged(false), averaged_inputs(1111, 65, false), options));
      },
      testing::FastKernel::same_bits);
  testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
    const RunOptions options{.kernels = kernels, .threads = threads};
    return testing::bits_of(
        testing::run_program(gelu_of, averaged_inputs(1111, 65, true), options));
  });
}

// ---- biased choices

struct BiasedChosen {
  std::vector<float> weights;
  std::vector<int32_t> indices;
  bool operator==(const BiasedChosen&) const = default;
};

/// Chooses k of some probabilities and biases.
BiasedChosen choose_biased(const std::vector<float>& probabilities,
                           const std::vector<float>& biases, const TopKOptions& options,
                           const std::optional<Emulation>& device = {}) {
  Runtime runtime = testing::make_runtime(host_target(1), device);
  Program program;
  Builder builder(program);
  const auto classes = std::ssize(biases);
  const Shape shape{std::ssize(probabilities) / classes, classes};
  const Value given = builder.input("probabilities", {shape, DType::f32, {}});
  const Value added = builder.input("biases", {{classes}, DType::f32, {}});
  const RouterSelection selection = router_top_k(builder, given, options, {}, added);
  builder.output(selection.weights);
  builder.output(selection.indices);
  testing::ProgramRun run(program, runtime);
  const auto bind = [&](Value value, const std::vector<float>& numbers) {
    const Tensor tensor(program.spec(value).shape, DType::f32);
    std::ranges::copy(numbers, tensor.data<float>());
    run.bind(value, tensor);
  };
  bind(given, probabilities);
  if (!options.forced_uniform) bind(added, biases);
  run.run();
  const Tensor weights = on_host(run[selection.weights]);
  const Tensor indices = on_host(run[selection.indices]);
  return {{weights.values<float>().begin(), weights.values<float>().end()},
          {indices.values<int32_t>().begin(), indices.values<int32_t>().end()}};
}

TEST(BiasedChoice, GoesByTheBiasAndWeighsWithoutIt) {
  const std::vector<float> probabilities{0.5F, 0.3F, 0.2F, 0.1F, 0.1F, 0.8F};
  EXPECT_EQ(choose_biased(probabilities, {0, 0, 0}, {.k = 1}),
            (BiasedChosen{{0.5F, 0.8F}, {0, 2}}));
  EXPECT_EQ(choose_biased(probabilities, {0, 0.25F, 0}, {.k = 1}),
            (BiasedChosen{{0.3F, 0.8F}, {1, 2}}));
  EXPECT_EQ(choose_biased(probabilities, {0, 0, -1}, {.k = 1}),
            (BiasedChosen{{0.5F, 0.1F}, {0, 0}}));
  EXPECT_EQ(choose_biased(probabilities, {0, 0.25F, 0}, {.k = 2}),
            (BiasedChosen{{0.3F, 0.5F, 0.8F, 0.1F}, {1, 0, 2, 1}}));
  // Equal sums: the lower index.
  EXPECT_EQ(choose_biased({0.25F, 0.5F}, {0.25F, 0}, {.k = 1}), (BiasedChosen{{0.25F}, {0}}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(choose_biased({nan, 0.5F}, {9, 0}, {.k = 1}).indices, std::vector<int32_t>{1});
}

RC_GTEST_PROP(BiasedChoice, DevicesChooseTheSame, ()) {
  const auto classes = *rc::gen::inRange<int64_t>(1, 70);
  const auto tokens = *rc::gen::inRange<int64_t>(1, 40);
  const auto numbers = [](int64_t count) {
    return *rc::gen::container<std::vector<float>>(
        static_cast<size_t>(count),
        rc::gen::map(rc::gen::inRange(0, 64), [](int n) { return static_cast<float>(n) / 64.0F; }));
  };
  const auto probabilities = numbers(tokens * classes);
  const auto biases = numbers(classes);
  const TopKOptions options{.k = *rc::gen::inRange<int64_t>(1, classes + 1)};
  for (const int lanes : {32, 64}) {
    RC_ASSERT(choose_biased(probabilities, biases, options) ==
              choose_biased(probabilities, biases, options, Emulation{.lanes = lanes}));
  }
}

TEST(BiasedChoice, RefusesBiasesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const Value given = builder.input("probabilities", {{4, 3}, DType::f32, {}});
  const Value shorter = builder.input("shorter", {{2}, DType::f32, {}});
  const Value wide = builder.input("wide", {{3}, DType::f64, {}});
  EXPECT_THROW(router_top_k(builder, given, {}, {}, shorter), InternalError);
  EXPECT_THROW(router_top_k(builder, given, {}, {}, wide), InternalError);
}

// ---- biases that balance

/// Two steps of the controller on a device or the processor, in f32; the biases after each.
std::vector<float> controlled(const std::optional<Emulation>& device) {
  Runtime runtime = testing::make_runtime(host_target(1), device);
  Program program;
  Builder builder(program);
  const auto vector = [&](const std::string& name) {
    return builder.state(name, {{3}, DType::f32, {}});
  };
  const BalanceState state{vector("biases"), vector("first"), vector("second"),
                           builder.input("step", {{1}, DType::f64, {}})};
  const Value counts = builder.input("counts", {{3}, DType::i32, {}});
  step_balance(builder, state, counts, {.rate = 0.125});
  std::vector<float> result;
  testing::ProgramRun run(program, runtime);
  const auto bind = [&](Value value, const Tensor& tensor) { run.bind(value, tensor); };
  std::vector<Tensor> kept;
  for (const Value value : {state.biases, state.first_moment, state.second_moment}) {
    kept.emplace_back(Shape{3}, DType::f32);
    kept.back().fill_zero();
    bind(value, kept.back());
  }
  const Tensor step({1}, DType::f64), tokens({3}, DType::i32);
  step.data<double>()[0] = 1;
  const int32_t given[] = {5, 1, 3};
  std::ranges::copy(given, tokens.data<int32_t>());
  bind(state.step, step);
  bind(counts, tokens);
  run.run();
  const Tensor biases = on_host(run[state.biases]);
  return {biases.values<float>().begin(), biases.values<float>().end()};
}

TEST(BalanceBiases, TheFirstStepIsTheRateAgainstTheSign) {
  const std::vector<float> biases = controlled({});
  EXPECT_NEAR(biases[0], -0.125, 1e-6);
  EXPECT_NEAR(biases[1], 0.125, 1e-6);
  EXPECT_EQ(biases[2], 0);  // a third of the tokens
  for (const int lanes : {32, 64}) EXPECT_EQ(controlled(Emulation{.lanes = lanes}), biases);
}

// ---- tokens that visit no expert

/// Choices of 4 experts; 4 is the skip class.
testing::FixedInputs skipping_choices() {
  const Tensor indices({3, 2}, DType::i32);
  const int32_t chosen[] = {0, 4, 1, 2, 4, 3};
  std::ranges::copy(chosen, indices.data<int32_t>());
  return {{"indices", indices}};
}

/// The inputs are output, x and weights.
std::vector<Value> skipped(Builder& builder, std::span<const Value> in) {
  const Value given = builder.input("indices", {{3, 2}, DType::i32, {}});
  return {add_skipped(builder, in[0], in[1], {in[2], given}, 4)};
}

std::vector<testing::RunInput> skipped_inputs() { return {{{3, 5}}, {{3, 5}}, {{3, 2}, true}}; }

TEST(SkipClass, GradientsAgreeWithFiniteDifferences) {
  testing::check_gradients(skipped, {{3, 5}, {3, 5}, {3, 2}}, skipping_choices);
}

/// With nothing from experts and weights of one, a token gets its input or nothing.
TEST(SkipClass, SkippedTokensGetTheirInput) {
  const Tensor chosen = skipping_choices().at("indices");
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const Spec rows{{3, 5}, DType::f64, {}};
  const std::vector<Value> in{builder.input("output", rows), builder.input("x", rows),
                              builder.input("weights", {{3, 2}, DType::f64, {}})};
  const Value result = skipped(builder, in)[0];
  builder.output(result);
  testing::ProgramRun run(program, runtime);
  const Tensor zeros({3, 5}, DType::f64), weights({3, 2}, DType::f64);
  zeros.fill_zero();
  std::ranges::fill(weights.values<double>(), 1);
  const Tensor x = testing::random_tensor({3, 5}, DType::f64, "x");
  run.bind(in[0], zeros);
  run.bind(in[1], x);
  run.bind(in[2], weights);
  run.bind(program.find("indices"), chosen);
  run.run();
  std::vector<double> expected = testing::as_doubles(x);
  std::fill(expected.begin() + 5, expected.begin() + 10, 0);  // token 1 visits two experts
  EXPECT_EQ(testing::as_doubles(run[result]), expected);
}

RC_GTEST_PROP(SkipClass, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  testing::expect_device_agrees(
      skipped, skipped_inputs(),
      {.dtype = *rc::gen::element(DType::f32, DType::bf16), .fixed = skipping_choices()});
}

}  // namespace
}  // namespace tessera
