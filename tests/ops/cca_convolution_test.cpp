// The two convolutions of compressed convolutional attention.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/rematerialize.h"
#include "ops/cca/depthwise.h"
#include "ops/cca/grouped_convolution.h"
#include "ops/cca_cases.h"
#include "ops/gemm/gemm_plan.h"
#include "program/program.h"
#include "support/emulated.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::PackedSequences;
using testing::RunOptions;

/// Both convolutions, or the first; inputs are x, its weight and its bias, and the second weight.
struct ConvolutionCase {
  PackedSequences tokens;
  int64_t heads = 1;
  int64_t inputs = 1;   ///< channels of a head before the second convolution
  int64_t outputs = 1;  ///< and after it; 0: only the first one

  int64_t channels() const { return heads * inputs; }
  std::vector<testing::RunInput> operands() const {
    std::vector<testing::RunInput> result{
        {{tokens.tokens(), channels()}}, {{channels(), 2}, true}, {{channels()}, true}};
    if (outputs > 0) result.push_back({{heads * outputs, inputs, 2}});
    return result;
  }
  testing::ProgramFunction function() const {
    return [*this](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      const Value taps = depthwise_taps(builder, in[0], in[1], in[2], tokens.options(builder));
      if (outputs == 0) return {taps};
      return {grouped_convolution(builder, taps, in[3], heads)};
    };
  }
  testing::RunResult run(RunOptions options) const {
    options.fixed = tokens.fixed();
    return testing::run_program(function(), operands(), options);
  }
};

ConvolutionCase random_convolution() {
  return {.tokens = testing::random_sequences(20),
          .heads = *rc::gen::inRange<int64_t>(1, 4),
          .inputs = *rc::gen::element<int64_t>(1, 3, 8, 20),
          .outputs = *rc::gen::element<int64_t>(1, 4, 8, 17)};
}

/// Both convolutions as they are defined, over one document after another: each is padded with two
/// zeros once, and then both run without padding.
std::vector<double> naive_convolutions(const ConvolutionCase& of) {
  const auto operands = of.operands();
  const auto x = testing::random_input(operands, 0), w0 = testing::random_input(operands, 1),
             b0 = testing::random_input(operands, 2), w1 = testing::random_input(operands, 3);
  const auto index = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<double> result;
  for (int64_t first = 0, end = 0; first < of.tokens.tokens(); first = end) {
    while (end < of.tokens.tokens() && of.tokens.first_token(end) == first) ++end;
    std::vector<double> padded(index(2 * of.channels()), 0.0);
    padded.insert(padded.end(), x.begin() + first * of.channels(), x.begin() + end * of.channels());
    std::vector<double> y;  // one row more than the document has
    for (int64_t row = 0; row < end - first + 1; ++row) {
      for (int64_t c = 0; c < of.channels(); ++c) {
        y.push_back(w0[index(2 * c)] * padded[index(row * of.channels() + c)] +
                    w0[index(2 * c + 1)] * padded[index((row + 1) * of.channels() + c)] +
                    b0[index(c)]);
      }
    }
    for (int64_t row = 0; row < end - first; ++row) {
      for (int64_t out = 0; out < of.heads * of.outputs; ++out) {
        double z = 0;
        for (int64_t in = 0; in < of.inputs; ++in) {
          const int64_t channel = out / of.outputs * of.inputs + in;
          for (int64_t tap = 0; tap < 2; ++tap) {
            z += w1[index((out * of.inputs + in) * 2 + tap)] *
                 y[index((row + tap) * of.channels() + channel)];
          }
        }
        result.push_back(z);
      }
    }
  }
  return result;
}

TEST(CompressedConvolutions, GradientsAgreeWithFiniteDifferences) {
  const std::vector<PackedSequences> all{
      {.sequences = 1, .sequence = 1},        {.sequences = 3, .sequence = 1},
      {.sequences = 2, .sequence = 2},        {.sequences = 2, .sequence = 3},
      {.sequences = 1, .sequence = 7},        testing::packed({{1, 1, 1}}),
      testing::packed({{2, 1, 4}, {3, 3, 1}})};
  for (const PackedSequences& tokens : all) {
    for (const int64_t outputs : {0, 3}) {
      const ConvolutionCase test{tokens, 2, 3, outputs};
      std::vector<Shape> shapes;
      for (const testing::RunInput& input : test.operands()) shapes.push_back(input.shape);
      testing::check_gradients(test.function(), shapes, [&] { return tokens.fixed(); });
    }
  }
}

/// The taps of one channel of x = 3, 5, 7, 11 with weights 10 and 100 and a bias of 1.
std::vector<double> taps_of_four(const PackedSequences& tokens) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 1}, DType::f32, {}});
  const Value weight = builder.parameter("weight", {{1, 2}, DType::f32, {}});
  const Value bias = builder.parameter("bias", {{1}, DType::f32, {}});
  const Value taps = depthwise_taps(builder, x, weight, bias, tokens.options(builder));
  builder.output(taps);
  testing::ProgramRun run(program, runtime);
  float values[] = {3, 5, 7, 11}, weights[] = {10, 100}, one[] = {1};
  run.bind(x, Tensor::wrap(values, {4, 1}, DType::f32));
  run.bind(weight, Tensor::wrap(weights, {1, 2}, DType::f32));
  run.bind(bias, Tensor::wrap(one, {1}, DType::f32));
  for (const auto& [name, tensor] : tokens.fixed()) run.bind(program.find(name), tensor);
  run.run();
  return testing::as_doubles(run[taps]);
}

TEST(CompressedConvolutions, BeforeADocumentsStartYIsTheBias) {
  using ::testing::ElementsAre;
  // y = 100 · 3 + 1, 10 · 3 + 100 · 5 + 1, 10 · 5 + 100 · 7 + 1, 10 · 7 + 100 · 11 + 1.
  EXPECT_THAT(taps_of_four({.sequences = 1, .sequence = 4}),
              ElementsAre(1, 301, 301, 531, 531, 751, 751, 1171));
  // The third token begins a document, or a sequence: its y is 100 · 7 + 1.
  const auto begins_again = ElementsAre(1, 301, 301, 531, 1, 701, 701, 1171);
  EXPECT_THAT(taps_of_four(testing::packed({{2, 2}})), begins_again);
  EXPECT_THAT(taps_of_four({.sequences = 2, .sequence = 2}), begins_again);
  // A document of one token, and one after it.
  EXPECT_THAT(taps_of_four(testing::packed({{2, 1, 1}})),
              ElementsAre(1, 301, 301, 531, 1, 701, 1, 1101));
}

RC_GTEST_PROP(CompressedConvolutions, AreTwoOfWhichNoneIsPaddedButTheDocument, ()) {
  const ConvolutionCase test = random_convolution();
  const std::vector<double> expected = naive_convolutions(test);
  const RunOptions plain{.dtype = DType::f64, .backward = false};
  testing::expect_close(test.run(plain).outputs[0], expected, {0, 1e-13}, "plain");
  const RunOptions fast{.dtype = DType::f32, .backward = false};
  testing::expect_close(test.run(fast).outputs[0], expected, {0, 1e-5}, "fast");
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(CompressedConvolutions, FastAgreesWithPlain, ()) {
  const ConvolutionCase test = random_convolution();
  testing::expect_close(test.run({.kernels = Kernels::fast}), test.run({.kernels = Kernels::plain}),
                        {0, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

RC_GTEST_PROP(CompressedConvolutions, BFloat16RoundsTapsOnce, ()) {
  ConvolutionCase test = random_convolution();
  test.outputs = 0;
  testing::expect_close(
      test.run({.dtype = DType::bf16, .inputs_fit_bf16 = true}),
      test.run({.dtype = DType::f32, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
      {testing::kBFloat16Rounding, 1e-5});
  RC_ASSERT(!::testing::Test::HasFailure());
}

/// The products of both kernels take the same rounded taps, so that each result is rounded once.
RC_GTEST_PROP(CompressedConvolutions, BFloat16AgreesWithPlain, ()) {
  const ConvolutionCase test = random_convolution();
  testing::expect_close(
      test.run({.dtype = DType::bf16, .inputs_fit_bf16 = true}),
      test.run({.dtype = DType::bf16, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
      {2 * testing::kBFloat16Rounding, 1e-2});
  RC_ASSERT(!::testing::Test::HasFailure());
}

/// More tokens than one product takes, and a rest.
TEST(CompressedConvolutions, TakeManyTokensInChunks) {
  const ConvolutionCase test{{.sequences = 3, .sequence = 700}, 3, 8, 6};
  testing::expect_close(test.run({.dtype = DType::f32}).outputs[0], naive_convolutions(test),
                        {0, 1e-5}, "f32");
  testing::expect_close(
      test.run({.dtype = DType::bf16, .inputs_fit_bf16 = true}),
      test.run({.dtype = DType::bf16, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
      {2 * testing::kBFloat16Rounding, 1e-2});
}

TEST(CompressedConvolutions, BitsOfTapsDoNotDependOnTheThreads) {
  const std::vector<PackedSequences> all{{.sequences = 3, .sequence = 301},
                                         testing::packed({{400, 1, 1, 98}, {1, 250, 249}})};
  for (const PackedSequences& tokens : all) {
    const ConvolutionCase test{tokens, 1, 257, 0};
    for (const DType dtype : {DType::f32, DType::bf16}) {
      testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
        return testing::bits_of(test.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
      });
    }
  }
}

TEST(CompressedConvolutions, BitsOfProductsDoNotDependOnTheThreads) {
  if (!rows_keep_their_bits(host_target(1))) GTEST_SKIP() << testing::kBitsChange;
  const ConvolutionCase test{{.sequences = 3, .sequence = 201}, 3, 40, 24};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads([&](Kernels kernels, int threads) {
      return testing::bits_of(test.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
    });
  }
}

RC_GTEST_PROP(CompressedConvolutions, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  ConvolutionCase test = random_convolution();
  if (*rc::gen::arbitrary<bool>()) test.outputs = 0;
  const DType dtype = *rc::gen::element(DType::f32, DType::bf16);
  test.inputs = testing::product_size(test.inputs, dtype);
  test.outputs = testing::product_size(test.outputs, dtype);
  testing::expect_device_agrees(
      test.function(), test.operands(),
      {.dtype = dtype, .inputs_fit_bf16 = true, .fixed = test.tokens.fixed()});
}

/// More channels than a block has threads, and tokens for several parts of the weights' gradients,
/// which cut documents.
TEST(CompressedConvolutions, TheDevicesKernelsTakeManyTokensAndChannels) {
  const ConvolutionCase test{testing::packed({{100, 1, 1, 58}, {160}}), 1, 264, 0};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunOptions options{.dtype = dtype, .kernels = Kernels::plain, .threads = 1};
    const testing::RunResult expected = test.run(options);
    options.kernels = Kernels::fast;
    for (const int lanes : {32, 64}) {
      testing::expect_equal_bits_on_devices(
          lanes,
          [&](const testing::Emulation& device) {
            options.emulation = device;
            return test.run(options);
          },
          [&](const testing::RunResult& result) {
            testing::expect_close(result, expected, testing::device_tolerance(dtype));
          });
    }
  }
}

/// The taps are twice as large as x, so the backward pass computes them again.
TEST(CompressedConvolutions, TapsAreComputedAgainInTheBackwardPass) {
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{6, 4}, DType::bf16, {}});
  const Value weight = builder.parameter("weight", {{4, 2}, DType::f32, {}});
  const Value bias = builder.parameter("bias", {{4}, DType::f32, {}});
  const Value grouped = builder.parameter("grouped", {{4, 2, 2}, DType::bf16, {}});
  const Value taps = depthwise_taps(builder, x, weight, bias, {.sequence = 3});
  const Value result = grouped_convolution(builder, taps, grouped, 2);
  builder.output(result);
  const Value seed = builder.input("seed", builder.spec(result));
  differentiate(builder, std::vector<Seed>{{result, seed}});
  rematerialize(builder, {});
  int repeated = 0;
  for (const Node& node : program.nodes()) {
    if (node.phase != Phase::recompute) continue;
    EXPECT_EQ(node.operation->name(), "depthwise_taps");
    ++repeated;
  }
  EXPECT_EQ(repeated, 1);
}

TEST(CompressedConvolutions, CountTheProductsOfTheirHeads) {
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{6, 8}, DType::bf16, {}});
  const Value weight = builder.parameter("weight", {{8, 2}, DType::f32, {}});
  const Value bias = builder.parameter("bias", {{8}, DType::f32, {}});
  const Value grouped = builder.parameter("grouped", {{6, 4, 2}, DType::bf16, {}});
  const Value taps = depthwise_taps(builder, x, weight, bias, {.sequence = 3});
  const Value result = grouped_convolution(builder, taps, grouped, 2);
  const Value seed = builder.input("seed", builder.spec(result));
  differentiate(builder, std::vector<Seed>{{result, seed, SeedKind::boundary}});
  std::map<std::string, Cost, std::less<>> costs;
  for (const Node& node : program.nodes()) {
    costs[std::string(node.operation->name())] = node_cost(program, node);
  }
  EXPECT_EQ(costs.at("depthwise_taps").flops, 0);
  EXPECT_EQ(costs.at("depthwise_taps").bytes, 2 * 6 * 8 + 4 * 8 * 3 + 2 * 6 * 16);
  constexpr double kFlops = 2 * 6 * 2 * (4 * 2) * 3;  // of two heads, each [6, 4 · 2] by 3 channels
  EXPECT_EQ(costs.at("grouped_convolution").flops, kFlops);
  EXPECT_EQ(costs.at("grouped_convolution").bytes, 2 * 6 * 16 + 2 * 6 * 8 + 2 * 6 * 6);
  EXPECT_EQ(costs.at("grouped_convolution_input_gradient").flops, kFlops);
  EXPECT_EQ(costs.at("grouped_convolution_weight_gradient").flops, kFlops);
  EXPECT_EQ(costs.at("grouped_convolution_weight_gradient").bytes,
            2 * 6 * 16 + 2 * 6 * 6 + 2 * 4 * (6 * 8));
}

TEST(CompressedConvolutions, RefuseInputsThatDoNotFit) {
  Program program;
  Builder builder(program);
  const auto input = [&](const char* name, const Shape& shape, DType dtype = DType::f32) {
    return builder.input(name, {shape, dtype, {}});
  };
  const Value x = input("x", {6, 8}), weight = input("weight", {8, 2}), bias = input("bias", {8});
  const auto refuses = [&](Value of, Value by, Value and_bias, const SequenceOptions& options) {
    EXPECT_THROW(depthwise_taps(builder, of, by, and_bias, options), InternalError);
  };
  refuses(x, input("w1", {8, 3}), bias, {.sequence = 3});
  refuses(x, input("w2", {8, 2}, DType::bf16), bias, {.sequence = 3});
  refuses(x, weight, input("b1", {7}), {.sequence = 3});
  refuses(input("x1", {6, 8}, DType::i32), weight, bias, {.sequence = 3});
  refuses(input("x2", {6, 2, 4}), weight, bias, {.sequence = 3});
  refuses(x, weight, bias, {.sequence = 4});
  refuses(x, weight, bias, {.sequence = 0});
  refuses(x, weight, bias, {.sequence = 3, .document_starts = input("d1", {5}, DType::i32)});
  refuses(x, weight, bias, {.sequence = 3, .document_starts = input("d2", {6})});
  const Value position = input("position", {1}, DType::i32);
  EXPECT_THROW(cached_depthwise_taps(builder, x, weight, bias, input("l1", {1, 8}), position),
               InternalError);
  EXPECT_THROW(cached_depthwise_taps(builder, x, weight, bias, input("l2", {2, 8}), bias),
               InternalError);

  const Value taps = input("taps", {6, 16});
  EXPECT_NO_THROW(grouped_convolution(builder, taps, input("g", {6, 4, 2}), 2));
  EXPECT_THROW(grouped_convolution(builder, taps, input("g1", {6, 4, 3}), 2), InternalError);
  EXPECT_THROW(grouped_convolution(builder, taps, input("g2", {6, 8, 2}), 2), InternalError);
  EXPECT_THROW(grouped_convolution(builder, taps, input("g3", {5, 4, 2}), 2), InternalError);
  EXPECT_THROW(grouped_convolution(builder, taps, input("g4", {6, 4, 2}, DType::bf16), 2),
               InternalError);
  EXPECT_THROW(grouped_convolution(builder, taps, input("g5", {6, 4, 2}), 0), InternalError);
}

}  // namespace
}  // namespace tessera
