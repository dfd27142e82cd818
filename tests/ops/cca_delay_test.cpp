// The delayed values of compressed convolutional attention.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/cca/delay.h"
#include "ops/cca_cases.h"
#include "support/emulated.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::PackedSequences;
using testing::RunOptions;

/// The joined rows of some columns of the tokens and of delayed ones.
struct DelayCase {
  PackedSequences tokens;
  int64_t current = 1;
  int64_t delayed = 1;

  std::vector<testing::RunInput> inputs() const {
    return {{{tokens.tokens(), current}}, {{tokens.tokens(), delayed}}};
  }
  testing::ProgramFunction function() const {
    return [*this](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
      return {join_delayed(builder, in[0], in[1], tokens.options(builder))};
    };
  }
  testing::RunResult run(RunOptions options) const {
    options.fixed = tokens.fixed();
    return testing::run_program(function(), inputs(), options);
  }
};

DelayCase random_delay() {
  return {.tokens = testing::random_sequences(20),
          .current = *rc::gen::element<int64_t>(1, 3, 8, 16),
          .delayed = *rc::gen::element<int64_t>(1, 5, 8, 24)};
}

TEST(JoinDelayed, GradientsAgreeWithFiniteDifferences) {
  const std::vector<PackedSequences> all{{.sequences = 2, .sequence = 1},
                                         {.sequences = 2, .sequence = 3},
                                         testing::packed({{1, 1, 2, 1}, {3, 1, 1}})};
  for (const PackedSequences& tokens : all) {
    testing::check_gradients(DelayCase{tokens, 2, 3}.function(),
                             {{tokens.tokens(), 2}, {tokens.tokens(), 3}},
                             [&] { return tokens.fixed(); });
  }
}

/// The joined rows of one column 1, 2, 3, 4 and a delayed one 10, 20, 30, 40.
std::vector<double> joined_of_four(const PackedSequences& tokens) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const Value current = builder.input("current", {{4, 1}, DType::bf16, {}});
  const Value delayed = builder.input("delayed", {{4, 1}, DType::bf16, {}});
  const Value joined = join_delayed(builder, current, delayed, tokens.options(builder));
  builder.output(joined);
  testing::ProgramRun run(program, runtime);
  const Tensor ones({4, 1}, DType::bf16), tens({4, 1}, DType::bf16);
  for (int i = 0; i < 4; ++i) {
    ones.data<BFloat16>()[i] = static_cast<BFloat16>(static_cast<float>(i + 1));
    tens.data<BFloat16>()[i] = static_cast<BFloat16>(static_cast<float>(10 * (i + 1)));
  }
  run.bind(current, ones);
  run.bind(delayed, tens);
  for (const auto& [name, tensor] : tokens.fixed()) run.bind(program.find(name), tensor);
  run.run();
  return testing::as_doubles(run[joined]);
}

TEST(JoinDelayed, GivesTheTokenBeforeOfTheSameDocument) {
  using ::testing::ElementsAre;
  EXPECT_THAT(joined_of_four({.sequences = 1, .sequence = 4}),
              ElementsAre(1, 0, 2, 10, 3, 20, 4, 30));
  EXPECT_THAT(joined_of_four({.sequences = 2, .sequence = 2}),
              ElementsAre(1, 0, 2, 10, 3, 0, 4, 30));
  EXPECT_THAT(joined_of_four(testing::packed({{2, 1, 1}})), ElementsAre(1, 0, 2, 10, 3, 0, 4, 0));
}

RC_GTEST_PROP(JoinDelayed, IsTheNaiveOneAndItsTranspose, ()) {
  const DelayCase test = random_delay();
  const auto inputs = test.inputs();
  const testing::RunResult result = test.run({.dtype = DType::f64});
  const auto current = testing::random_input(inputs, 0), delayed = testing::random_input(inputs, 1);
  const int64_t width = test.current + test.delayed;
  const auto seed = testing::as_doubles(
      testing::random_tensor({test.tokens.tokens(), width}, DType::f64, "seed0"));
  std::vector<double> joined(seed.size(), 0.0), current_gradient(current.size(), 0.0),
      delayed_gradient(delayed.size(), 0.0);
  for (int64_t token = 0; token < test.tokens.tokens(); ++token) {
    for (int64_t c = 0; c < width; ++c) {
      const auto at = static_cast<size_t>(token * width + c);
      if (c < test.current) {
        const auto from = static_cast<size_t>(token * test.current + c);
        joined[at] = current[from];
        current_gradient[from] = seed[at];
      } else if (token != test.tokens.first_token(token)) {
        const auto from = static_cast<size_t>((token - 1) * test.delayed + c - test.current);
        joined[at] = delayed[from];
        delayed_gradient[from] = seed[at];
      }
    }
  }
  RC_ASSERT(result.outputs[0] == joined);
  RC_ASSERT(result.gradients[0] == current_gradient);
  RC_ASSERT(result.gradients[1] == delayed_gradient);
}

TEST(JoinDelayed, BitsDoNotDependOnTheThreads) {
  const DelayCase test{testing::packed({{400, 1, 1, 98}, {1, 250, 249}}), 64, 33};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(
              test.run({.dtype = dtype, .kernels = kernels, .threads = threads}));
        },
        testing::FastKernel::same_bits);
  }
}

RC_GTEST_PROP(JoinDelayed, TheDevicesKernelsEqualTheProcessors, ()) {
  const DelayCase test = random_delay();
  RunOptions options{.dtype = *rc::gen::element(DType::f32, DType::bf16), .threads = 1};
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& emulation) {
    options.emulation = emulation;
    return test.run(options);
  });
}

TEST(JoinDelayed, RefusesInputsThatDoNotFit) {
  Program program;
  Builder builder(program);
  const auto input = [&](const char* name, const Shape& shape, DType dtype = DType::f32) {
    return builder.input(name, {shape, dtype, {}});
  };
  const Value current = input("current", {6, 4}), delayed = input("delayed", {6, 3});
  const auto refuses = [&](Value a, Value b, const SequenceOptions& options) {
    EXPECT_THROW(join_delayed(builder, a, b, options), InternalError);
  };
  refuses(current, input("short", {5, 3}), {.sequence = 3});
  refuses(current, input("rounded", {6, 3}, DType::bf16), {.sequence = 3});
  refuses(input("ids", {6, 3}, DType::i32), input("ids2", {6, 3}, DType::i32), {.sequence = 3});
  refuses(current, delayed, {.sequence = 5});
  refuses(current, delayed, {.sequence = 3, .document_starts = input("d", {3}, DType::i32)});
  const Value position = input("position", {1}, DType::i32);
  EXPECT_THROW(cached_join_delayed(builder, current, delayed, input("l1", {1, 4}), position),
               InternalError);
  EXPECT_THROW(cached_join_delayed(builder, current, delayed, input("l2", {1, 3}),
                                   input("places", {2}, DType::i32)),
               InternalError);
}

}  // namespace
}  // namespace tessera
