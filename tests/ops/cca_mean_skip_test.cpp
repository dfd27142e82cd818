// The mean skip and the norm of compressed convolutional attention.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca/mean_skip.h"
#include "ops/cca_cases.h"
#include "ops/elementwise/elementwise.h"
#include "support/emulated.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::RunOptions;

/// A mean skip with its sizes; the inputs are the projected and the convolved query and key, both
/// biases and the temperature.
struct SkipCase {
  int64_t tokens = 1;
  int64_t groups = 1;  ///< key heads
  int64_t heads = 1;   ///< query heads of a key head
  int64_t head_dim = 1;
  double epsilon = 1e-12;
  bool in_place = false;  ///< nothing else reads the convolved ones and the results' gradients

  int64_t queries() const { return groups * heads * head_dim; }
  int64_t keys() const { return groups * head_dim; }
  std::vector<testing::RunInput> inputs() const {
    return {{{tokens, queries()}}, {{tokens, keys()}}, {{tokens, queries()}}, {{tokens, keys()}},
            {{queries()}, true},   {{keys()}, true},   {{groups}, true}};
  }
  testing::ProgramFunction function() const {
    return [*this](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      const auto own = [&](Value x) { return in_place ? scale(builder, x, 1.0) : x; };
      const QueryAndKey result =
          mean_skip_norm(builder, {in[0], in[1]}, {own(in[2]), own(in[3])}, {in[4], in[5]}, in[6],
                         {.head_dim = head_dim, .epsilon = epsilon});
      return {own(result.query), own(result.key)};
    };
  }
  testing::RunResult run(const RunOptions& options) const {
    return testing::run_program(function(), inputs(), options);
  }
};

/// Heads of fewer than 8 channels may by chance have next to no norm, and then large gradients
/// that cancel.
SkipCase random_skip() {
  return {.tokens = *rc::gen::inRange<int64_t>(1, 70),
          .groups = *rc::gen::inRange<int64_t>(1, 4),
          .heads = *rc::gen::inRange<int64_t>(1, 5),
          .head_dim = *rc::gen::element<int64_t>(8, 13, 32, 64, 65)};
}

/// The gradient of a temperature is one sum over all tokens, whose terms may cancel: its error is
/// one of the terms, which a random gradient makes about as large as a head's channels are many.
void expect_agree(const SkipCase& test, testing::RunResult actual, testing::RunResult expected,
                  const testing::Tolerance& tolerance) {
  const auto terms = static_cast<double>(test.tokens * test.head_dim);
  ASSERT_EQ(actual.gradients[6].size(), expected.gradients[6].size());
  for (size_t group = 0; group < expected.gradients[6].size(); ++group) {
    ASSERT_NEAR(actual.gradients[6][group], expected.gradients[6][group], 1e-6 * terms)
        << "temperature of key head " << group;
  }
  actual.gradients[6].clear();
  expected.gradients[6].clear();
  testing::expect_close(actual, expected, tolerance);
}

/// The results by the formulas, head by head.
std::vector<std::vector<double>> naive_skip(const SkipCase& of) {
  std::vector<std::vector<double>> in;
  const auto inputs = of.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back(testing::random_input(inputs, i));
  const int64_t all_heads = of.groups * of.heads;
  const auto at = [&](size_t input, int64_t token, int64_t head, int64_t c, int64_t heads) {
    return in[input][static_cast<size_t>((token * heads + head) * of.head_dim + c)];
  };
  const auto mean_of_query = [&](int64_t token, int64_t head, int64_t c) {
    return (at(0, token, head, c, all_heads) + at(1, token, head / of.heads, c, of.groups)) / 2;
  };
  std::vector<std::vector<double>> results(2);
  const auto append_normed = [&](std::vector<double>& result, const std::vector<double>& sum,
                                 double scale) {
    double square = of.epsilon;
    for (const double entry : sum) square += entry * entry;
    for (const double entry : sum) {
      result.push_back(scale * std::sqrt(static_cast<double>(of.head_dim)) * entry /
                       std::sqrt(square));
    }
  };
  for (int64_t token = 0; token < of.tokens; ++token) {
    for (int64_t head = 0; head < all_heads; ++head) {
      std::vector<double> sum;
      for (int64_t c = 0; c < of.head_dim; ++c) {
        sum.push_back(at(2, token, head, c, all_heads) + at(4, 0, head, c, all_heads) +
                      mean_of_query(token, head, c));
      }
      append_normed(results[0], sum, 1);
    }
    for (int64_t key = 0; key < of.groups; ++key) {
      std::vector<double> sum;
      for (int64_t c = 0; c < of.head_dim; ++c) {
        double mean = 0;
        for (int64_t head = key * of.heads; head < (key + 1) * of.heads; ++head) {
          mean += mean_of_query(token, head, c) / static_cast<double>(of.heads);
        }
        sum.push_back(at(3, token, key, c, of.groups) + at(5, 0, key, c, of.groups) + mean);
      }
      append_normed(results[1], sum, in[6][static_cast<size_t>(key)]);
    }
  }
  return results;
}

TEST(MeanSkipNorm, GradientsAgreeWithFiniteDifferences) {
  for (const int64_t heads : {1, 3}) {
    for (const int64_t groups : {1, 2}) {
      const SkipCase test{.tokens = 3, .groups = groups, .heads = heads, .head_dim = 5};
      std::vector<Shape> shapes;
      for (const testing::RunInput& input : test.inputs()) shapes.push_back(input.shape);
      testing::check_gradients(test.function(), shapes);
    }
  }
}

/// A norm that is not large beside epsilon.
TEST(MeanSkipNorm, GradientsKnowEpsilon) {
  const SkipCase test{.tokens = 2, .groups = 2, .heads = 2, .head_dim = 3, .epsilon = 4};
  std::vector<Shape> shapes;
  for (const testing::RunInput& input : test.inputs()) shapes.push_back(input.shape);
  testing::check_gradients(test.function(), shapes);
}

/// Queries and keys go both through the convolutions and around them.
TEST(MeanSkipNorm, GradientsThroughTheConvolutionsAgreeWithFiniteDifferences) {
  const auto tokens = testing::packed({{1, 3, 1}, {2, 2, 1}});
  constexpr int64_t kQueries = 2 * 2 * 3, kKeys = 2 * 3;
  const auto prepared = [&](Builder& builder, std::span<const Value> in) {
    const SequenceOptions options = tokens.options(builder);
    const auto convolved = [&](Value x, size_t first, int64_t heads) {
      const Value taps = depthwise_taps(builder, x, in[first], in[first + 1], options);
      return grouped_convolution(builder, taps, in[first + 2], heads);
    };
    const QueryAndKey result =
        mean_skip_norm(builder, {in[0], in[1]}, {convolved(in[0], 2, 4), convolved(in[1], 5, 2)},
                       {in[8], in[9]}, in[10], {.head_dim = 3});
    return std::vector<Value>{result.query, result.key};
  };
  testing::check_gradients(prepared,
                           {{tokens.tokens(), kQueries},
                            {tokens.tokens(), kKeys},
                            {kQueries, 2},
                            {kQueries},
                            {kQueries, 3, 2},
                            {kKeys, 2},
                            {kKeys},
                            {kKeys, 3, 2},
                            {kQueries},
                            {kKeys},
                            {2}},
                           [&] { return tokens.fixed(); });
}

/// Two query heads of two channels on one key head, without convolutions.
TEST(MeanSkipNorm, MatchesACaseByHand) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const auto input = [&](const char* name, const Shape& shape) {
    return builder.input(name, {shape, DType::f32, {}});
  };
  const QueryAndKey projected{input("q0", {1, 4}), input("k0", {1, 2})};
  const QueryAndKey convolved{input("zq", {1, 4}), input("zk", {1, 2})};
  const QueryAndKey bias{input("bq", {4}), input("bk", {2})};
  const Value temperature = input("temperature", {1});
  const QueryAndKey result =
      mean_skip_norm(builder, projected, convolved, bias, temperature, {.head_dim = 2});
  builder.output(result.query);
  builder.output(result.key);
  testing::ProgramRun run(program, runtime);
  float q0[] = {4, 8, -2, 0}, k0[] = {2, 0}, zq[] = {0, 0, 0, 3}, zk[] = {1, 0};
  float bq[] = {0, 0, 0, 2}, bk[] = {0, 2}, three[] = {3};
  run.bind(projected.query, Tensor::wrap(q0, {1, 4}, DType::f32));
  run.bind(projected.key, Tensor::wrap(k0, {1, 2}, DType::f32));
  run.bind(convolved.query, Tensor::wrap(zq, {1, 4}, DType::f32));
  run.bind(convolved.key, Tensor::wrap(zk, {1, 2}, DType::f32));
  run.bind(bias.query, Tensor::wrap(bq, {4}, DType::f32));
  run.bind(bias.key, Tensor::wrap(bk, {2}, DType::f32));
  run.bind(temperature, Tensor::wrap(three, {1}, DType::f32));
  run.run();
  // mq = (3, 4) and (0, 0); their mean is (1.5, 2). So q is √2 times the directions of (3, 4) and
  // of (0, 5), and k is 3 √2 times that of (2.5, 4).
  const double root = std::sqrt(2.0), norm = std::sqrt(2.5 * 2.5 + 16);
  testing::expect_close(testing::as_doubles(run[result.query]), {0.6 * root, 0.8 * root, 0, root},
                        {1e-6, 0}, "query");
  testing::expect_close(testing::as_doubles(run[result.key]),
                        {3 * root * 2.5 / norm, 3 * root * 4 / norm}, {1e-6, 0}, "key");
}

RC_GTEST_PROP(MeanSkipNorm, MatchesTheFormulas, ()) {
  SkipCase test = random_skip();
  test.head_dim = *rc::gen::inRange<int64_t>(1, 40);
  const auto expected = naive_skip(test);
  const auto plain = test.run({.dtype = DType::f64, .backward = false});
  const auto fast = test.run({.dtype = DType::f32, .backward = false});
  for (size_t i = 0; i < 2; ++i) {
    testing::expect_close(plain.outputs[i], expected[i], {0, 1e-12}, "plain");
    testing::expect_close(fast.outputs[i], expected[i], {0, 1e-4}, "fast");
  }
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(MeanSkipNorm, FastAgreesWithPlain, ()) {
  const SkipCase test = random_skip();
  expect_agree(test, test.run({.kernels = Kernels::fast}), test.run({.kernels = Kernels::plain}),
               {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(MeanSkipNorm, BFloat16RoundsOnce, ()) {
  const SkipCase test = random_skip();
  expect_agree(test, test.run({.dtype = DType::bf16, .inputs_fit_bf16 = true}),
               test.run({.dtype = DType::f32, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
               {testing::kBFloat16Rounding, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(MeanSkipNorm, BitsDoNotDependOnTheThreads) {
  const SkipCase test{.tokens = 533, .groups = 2, .heads = 3, .head_dim = 67};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
      return testing::bits_of(test.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
    });
  }
}

/// The scaled inputs end at the operation, and the gradients of the scaled results at its gradient.
TEST(MeanSkipNorm, WorksInTheMemoryOfItsInputs) {
  SkipCase test{.tokens = 7, .groups = 2, .heads = 3, .head_dim = 20};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const bool backward : {false, true}) {
      for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
        const RunOptions options{.dtype = dtype, .kernels = kernels, .backward = backward};
        test.in_place = false;
        const testing::RunResult expected = test.run(options);
        test.in_place = true;
        EXPECT_TRUE(test.run(options) == expected);
      }
    }
  }
}

/// Compares all devices, with warps of so many threads, with the plain kernels.
void expect_devices_agree(const SkipCase& test, DType dtype, int lanes) {
  RunOptions options{.dtype = dtype, .kernels = Kernels::plain, .threads = 1};
  const testing::RunResult expected = test.run(options);
  options.kernels = Kernels::fast;
  testing::expect_equal_bits_on_devices(
      lanes,
      [&](const testing::Emulation& device) {
        options.emulation = device;
        return test.run(options);
      },
      [&](const testing::RunResult& result) {
        expect_agree(test, result, expected, testing::device_tolerance(dtype));
      });
}

RC_GTEST_PROP(MeanSkipNorm, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  SkipCase test = random_skip();
  test.tokens = *rc::gen::inRange<int64_t>(1, 40);
  test.in_place = *rc::gen::arbitrary<bool>();
  expect_devices_agree(test, *rc::gen::element(DType::f32, DType::bf16), testing::any_lanes());
  RC_ASSERT(!::testing::Test::HasFailure());
}

void expect_all_devices_agree(const SkipCase& test, DType dtype) {
  for (const int lanes : {32, 64}) expect_devices_agree(test, dtype, lanes);
}

TEST(MeanSkipNorm, TheDevicesKernelsTakeHeadsOfAnySize) {
  for (const int64_t head_dim : {128, 130, 132, 255, 256}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      expect_all_devices_agree({.tokens = 5, .groups = 2, .heads = 2, .head_dim = head_dim}, dtype);
    }
  }
  // So many channels of a group that the sums of one or two warps fit into shared memory.
  expect_all_devices_agree({.tokens = 3, .groups = 1, .heads = 47, .head_dim = 255}, DType::bf16);
  expect_all_devices_agree({.tokens = 9, .groups = 2, .heads = 20, .head_dim = 256}, DType::f32);
}

TEST(MeanSkipNorm, TheDevicesKernelsTakeManyTokens) {
  // More tokens than all parts have at once.
  expect_all_devices_agree({.tokens = 301, .groups = 2, .heads = 2, .head_dim = 8}, DType::bf16);
}

/// A sum of zeros stays zeros, and its gradient finite.
TEST(MeanSkipNorm, OfZerosIsZeros) {
  const testing::ProgramFunction of_zeros = [](Builder& builder, std::span<const Value> in) {
    std::vector<Value> zeros;
    for (const Value x : in) zeros.push_back(scale(builder, x, 0.0));
    const QueryAndKey result = mean_skip_norm(builder, {zeros[0], zeros[1]}, {zeros[2], zeros[3]},
                                              {zeros[4], zeros[5]}, in[6], {.head_dim = 8});
    return std::vector<Value>{result.query, result.key};
  };
  const SkipCase test{.tokens = 2, .groups = 1, .heads = 2, .head_dim = 8};
  for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
    const auto result = testing::run_program(of_zeros, test.inputs(), {.kernels = kernels});
    for (const auto& output : result.outputs) {
      EXPECT_THAT(output, ::testing::Each(0.0));
    }
    EXPECT_THAT(result.gradients[6], ::testing::Each(0.0)) << "of the temperature";
  }
}

TEST(MeanSkipNorm, RefusesInputsThatDoNotFit) {
  Program program;
  Builder builder(program);
  const auto input = [&](const Shape& shape, DType dtype = DType::bf16) {
    return builder.input(fmt::format("input{}", program.values().size()), {shape, dtype, {}});
  };
  const auto wide = [&](const Shape& shape) { return input(shape, DType::f32); };
  const QueryAndKey rows{input({3, 16}), input({3, 8})};
  const QueryAndKey bias{wide({16}), wide({8})};
  const Value temperature = wide({2});
  const MeanSkipOptions options{.head_dim = 4};
  const auto refuses = [&](const QueryAndKey& projected, const QueryAndKey& convolved,
                           const QueryAndKey& biases, Value scales, const MeanSkipOptions& by) {
    EXPECT_THROW(mean_skip_norm(builder, projected, convolved, biases, scales, by), InternalError);
  };
  refuses({input({3, 12}), rows.key}, rows, bias, temperature, options);
  refuses({input({2, 16}), rows.key}, rows, bias, temperature, options);
  refuses({rows.query, wide({3, 8})}, rows, bias, temperature, options);
  refuses(rows, {rows.query, input({3, 4})}, bias, temperature, options);
  refuses(rows, rows, {wide({8}), bias.key}, temperature, options);
  refuses(rows, rows, {bias.query, input({8})}, temperature, options);
  refuses(rows, rows, bias, wide({4}), options);
  refuses(rows, rows, bias, temperature, {.head_dim = 3});
  refuses(rows, rows, bias, temperature, {.head_dim = 0});
  refuses(rows, rows, bias, temperature, {.head_dim = 4, .epsilon = 0});
  const QueryAndKey result = mean_skip_norm(builder, rows, rows, bias, temperature, options);
  builder.output(result.query);
  const Value seed = builder.input("seed", builder.spec(result.query));
  EXPECT_THROW(differentiate(builder, std::vector<Seed>{{result.query, seed, SeedKind::boundary}},
                             std::vector{rows.query}),
               InternalError);
}

TEST(MeanSkipNorm, IsRefusedOnADeviceForLargerHeads) {
  Program program;
  Builder builder(program);
  const auto input = [&](const Shape& shape) {
    return builder.input(fmt::format("input{}", program.values().size()), {shape, DType::f32, {}});
  };
  const auto workspace = [&](int64_t heads, int64_t head_dim) {
    const Shape queries{1, heads * head_dim}, keys{1, head_dim};
    mean_skip_norm(builder, {input(queries), input(keys)}, {input(queries), input(keys)},
                   {input({heads * head_dim}), input({head_dim})}, input({1}),
                   {.head_dim = head_dim});
    const Node& node = program.nodes().back();
    return node.operation->workspace_bytes({.device = Device::cuda}, program.specs(node.inputs));
  };
  EXPECT_NO_THROW(workspace(46, 256));
  EXPECT_THROW(workspace(47, 256), InternalError);
  EXPECT_THROW(workspace(1, 257), InternalError);
}

}  // namespace
}  // namespace tessera
