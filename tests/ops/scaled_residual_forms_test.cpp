// Residual scaling by hand, in the memory of its inputs, computed again, of rows of any length, and
// what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/rematerialize.h"
#include "ops/host_target.h"
#include "ops/norm/scaled_residual.h"
#include "ops/scaled_residual_cases.h"
#include "support/emulated.h"

namespace tessera {
namespace {

using testing::residual_variants;
using testing::ResidualCase;
using testing::RunOptions;

/// One row of two elements whose numbers are simple: the stream is (4, -4), epsilon 9 makes the
/// deviation 5, and its normalised row is (0.8, -0.8).
TEST(ScaledResidual, GradientsMatchNumbersByHand) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Runtime runtime(host_target(1));
    Program program;
    Builder builder(program);
    testing::ProgramRun run(program, runtime);
    std::vector<std::pair<Value, Tensor>> given;
    const auto make = [&](const Shape& shape, DType type, float first, float second) {
      const Tensor numbers(shape, DType::f32);
      numbers.data<float>()[0] = first;
      numbers.data<float>()[1] = second;
      Tensor tensor(shape, type);
      convert(numbers, tensor);
      given.emplace_back(builder.input(fmt::format("input{}", given.size()), {shape, type, {}}),
                         tensor);
      return given.back().first;
    };
    const DType wide = accumulation_dtype(dtype);
    const auto vector = [&](float first, float second) { return make({2}, wide, first, second); };
    const Value x = make({1, 2}, dtype, 1, -2);
    const ResidualScale x_scaling{vector(2, 1), vector(0.5, 1)};  // (1.5, -1) becomes (3, -1)
    const Value stream = make({1, 2}, wide, 4, 1);
    const ResidualScale stream_scaling{vector(0.5, -1), vector(-2, 2)};  // (2, 3) becomes (1, -3)
    const Value weight = vector(10, 5);
    const ScaledResidual result =
        scaled_residual_norm(builder, x, x_scaling, stream, stream_scaling, weight, {.epsilon = 9});
    builder.output(result.output);
    builder.output(result.stream);
    // By output and weight (10, 5), whose mean product with the normalised row is 2: (8.4, 6.6)
    // / 5.
    const Value output_gradient = make({1, 2}, dtype, 1, 1);
    const Value sum_gradient = make({1, 2}, wide, 0.32F, -0.32F);  // so that the stream's is (2, 1)
    const std::vector<Value> inputs{x,      x_scaling.scale,      x_scaling.bias,
                                    stream, stream_scaling.scale, stream_scaling.bias,
                                    weight};
    const std::vector<Value> gradients =
        differentiate(builder,
                      std::vector<Seed>{{result.output, output_gradient, SeedKind::boundary},
                                        {result.stream, sum_gradient, SeedKind::boundary}},
                      inputs);
    for (const Value gradient : gradients) builder.output(gradient);
    for (const auto& [value, tensor] : given) run.bind(value, tensor);
    run.run();
    const auto expect = [&](Value value, double first, double second) {
      const double tolerance = dtype == DType::f64 ? 1e-7 : 2e-6;  // 0.32 is rounded to f32
      const std::vector<double> found = testing::as_doubles(run[value]);
      EXPECT_NEAR(found[0], first, tolerance) << program.info(value).name;
      EXPECT_NEAR(found[1], second, tolerance) << program.info(value).name;
    };
    expect(result.stream, 4, -4);
    expect(result.output, 8, -4);
    expect(gradients[0], 4, 1);
    expect(gradients[1], 3, -1);
    expect(gradients[2], 4, 1);
    expect(gradients[3], 1, -1);
    expect(gradients[4], 4, 3);
    expect(gradients[5], 1, -1);
    expect(gradients[6], 0.8, -0.8);
  }
}

TEST(ScaledResidual, RowsOfAnyWidth) {
  for (int64_t width = 1; width < 8; ++width) {
    for (const ResidualCase& variant : residual_variants(1, width)) {
      testing::expect_close(variant.run({.kernels = Kernels::fast, .backward = false}),
                            variant.run({.kernels = Kernels::plain, .backward = false}), {0, 1e-5});
    }
  }
  // A row and its sums are beyond the second cache. Sums one by one of so many numbers of f32 would
  // be less exact than the fast kernel, so they are taken in f64.
  for (const bool streams : {false, true}) {
    const ResidualCase variant{3, 300001, streams};
    testing::expect_close(
        variant.run({.dtype = DType::f32, .kernels = Kernels::fast, .inputs_fit_bf16 = true}),
        variant.run({.dtype = DType::f64, .kernels = Kernels::plain, .inputs_fit_bf16 = true}),
        {0, 1e-5});
  }
}

/// The scaled inputs end at the operation, and the gradients of the scaled results at its gradient.
TEST(ScaledResidual, WorksInTheMemoryOfItsInputs) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (ResidualCase variant : residual_variants(7, 100)) {
      for (const bool backward : {false, true}) {
        for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
          const RunOptions options{.dtype = dtype, .kernels = kernels, .backward = backward};
          variant.in_place = false;
          const testing::RunResult expected = variant.run(options);
          variant.in_place = true;
          EXPECT_TRUE(variant.run(options) == expected);
        }
      }
    }
  }
}

/// How a backward pass gets the norm.
enum class Again { kept, computed, from_the_stream };

/// The gradients of a residual scaling, as a block of its own, whose output is used.
testing::RunResult run_again(const ResidualCase& variant, Again again, const RunOptions& options,
                             size_t* inputs_of_recomputation) {
  Runtime runtime = testing::make_runtime(host_target(2, options.kernels), options.emulation);
  Program program;
  Builder builder(program);
  std::vector<Value> values;
  for (const testing::RunInput& input : variant.inputs()) {
    const DType dtype = input.wide ? accumulation_dtype(options.dtype) : options.dtype;
    values.push_back(
        builder.parameter(fmt::format("input{}", values.size()), {input.shape, dtype, {}}));
  }
  std::vector<Value> results;
  {
    const Builder::Scope scope = builder.scope("norm", Block::norm);
    results = variant.function()(builder, values);
  }
  if (again == Again::from_the_stream) builder.keep(results[1], Keep::block);
  const Value bounded = clamp(builder, results[0], 1.5);
  builder.output(bounded);
  const Value seed = builder.input("seed", builder.spec(bounded));
  differentiate(builder, std::vector<Seed>{{bounded, seed, SeedKind::boundary}});
  rematerialize(builder, {.norm = again != Again::kept});
  *inputs_of_recomputation = 0;
  for (const Node& node : program.nodes()) {
    if (node.phase == Phase::recompute) *inputs_of_recomputation = node.inputs.size();
  }
  testing::ProgramRun frame(program, runtime);
  const auto random_of = [&](Value value) {
    const Spec& of = program.spec(value);
    return testing::random_tensor(of.shape, of.dtype, program.info(value).name);
  };
  frame.bind(seed, random_of(seed));
  for (const Value value : values) {
    frame.bind(value, random_of(value));
    const Spec& of = program.spec(program.main_gradient(value));
    const Tensor gradient(of.shape, of.dtype);
    gradient.fill_zero();
    frame.bind(program.main_gradient(value), gradient);
  }
  frame.run();
  testing::RunResult run{{testing::as_doubles(frame[bounded])}, {}};
  for (const Value value : values) {
    run.gradients.push_back(testing::as_doubles(frame[program.main_gradient(value)]));
  }
  return run;
}

void expect_same_bits_again(const ResidualCase& variant, const RunOptions& options) {
  size_t inputs = 0;
  const testing::RunResult kept = run_again(variant, Again::kept, options, &inputs);
  EXPECT_EQ(inputs, 0U);
  EXPECT_TRUE(kept == run_again(variant, Again::computed, options, &inputs));
  EXPECT_EQ(inputs, variant.streams ? 7U : 4U) << "all inputs";
  EXPECT_TRUE(kept == run_again(variant, Again::from_the_stream, options, &inputs));
  EXPECT_EQ(inputs, 2U) << "the kept stream and the weight";
}

TEST(ScaledResidual, RecomputesFromTheKeptStreamWithTheSameBits) {
  for (const bool streams : {false, true}) {
    for (const int64_t width : {70, 257}) {
      const ResidualCase variant{9, width, streams};
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
        expect_same_bits_again(variant, {.dtype = dtype});
        expect_same_bits_again(variant, {.dtype = dtype, .kernels = Kernels::plain});
      }
      for (const testing::Emulation& device : testing::every_device()) {
        expect_same_bits_again(variant, {.dtype = DType::bf16, .emulation = device});
        expect_same_bits_again(variant, {.dtype = DType::f32, .emulation = device});
      }
    }
  }
}

RC_GTEST_PROP(ScaledResidual, TheDevicesKernelsWorkInTheMemoryOfTheirInputs, ()) {
  const ResidualCase variant{.rows = *rc::gen::inRange<int64_t>(1, 40),
                             .width = *rc::gen::element<int64_t>(8, 13, 64, 257, 512),
                             .streams = *rc::gen::arbitrary<bool>(),
                             .stream_gradient = *rc::gen::arbitrary<bool>(),
                             .in_place = true};
  testing::expect_device_agrees(variant.function(), variant.inputs(),
                                {.dtype = *rc::gen::element(DType::f32, DType::bf16)});
  RC_ASSERT(!::testing::Test::HasFailure());
}

void expect_scaled_on_devices(const ResidualCase& variant, DType dtype) {
  RunOptions options{.dtype = dtype, .kernels = Kernels::plain, .threads = 1};
  const testing::RunResult expected = variant.run(options);
  options.kernels = Kernels::fast;
  for (const int lanes : {32, 64}) {
    testing::expect_equal_bits_on_devices(
        lanes,
        [&](const testing::Emulation& device) {
          options.emulation = device;
          return variant.run(options);
        },
        [&](const testing::RunResult& result) {
          testing::expect_close(result, expected, testing::device_tolerance(dtype));
        });
  }
}

TEST(ScaledResidual, TheDevicesKernelsTakeRowsOfAnyLength) {
  // Rows whose sums fit into a block's registers, and longer ones.
  for (const int64_t width : {2048, 4096, 4100, 4101}) {
    expect_scaled_on_devices({11, width}, DType::bf16);
    expect_scaled_on_devices({11, width, false}, DType::f32);
  }
}

TEST(ScaledResidual, TheDevicesKernelsTakeManyRows) {
  // More rows than all blocks have at once. The emulated device has one multiprocessor.
  const int64_t rows = testing::devices_under_test().real ? 16500 : 300;
  expect_scaled_on_devices({rows, 8}, DType::bf16);
}

class ScaledResidualRefuses : public ::testing::Test {
 protected:
  Value input(const Shape& shape, DType dtype = DType::f32) {
    return builder_.input(fmt::format("input{}", program_.values().size()), {shape, dtype, {}});
  }
  ResidualScale vectors() { return {input({6}), input({6})}; }
  /// The message with which it is refused.
  std::string refusal(Value x, const ResidualScale& x_scaling, std::optional<Value> stream,
                      const std::optional<ResidualScale>& stream_scaling, Value weight,
                      const NormOptions& options = {}) {
    try {
      scaled_residual_norm(builder_, x, x_scaling, stream, stream_scaling, weight, options);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "accepted";
  }

  Program program_;
  Builder builder_{program_};
};

TEST_F(ScaledResidualRefuses, InputsThatDoNotFit) {
  using ::testing::HasSubstr;
  const Value x = input({4, 6}, DType::bf16), stream = input({4, 6}), weight = input({6});
  const ResidualScale x_scaling = vectors(), stream_scaling = vectors();
  EXPECT_EQ(refusal(x, x_scaling, stream, stream_scaling, weight), "accepted");
  EXPECT_EQ(refusal(x, x_scaling, {}, {}, weight), "accepted");
  EXPECT_THAT(refusal(input({2, 2, 6}), x_scaling, {}, {}, weight),
              HasSubstr("must be [tokens, row]"));
  EXPECT_THAT(refusal(input({4, 6}, DType::i32), x_scaling, {}, {}, weight), HasSubstr("floating"));
  EXPECT_THAT(refusal(x, x_scaling, input({3, 6}), stream_scaling, weight),
              HasSubstr("a stream f32 [3, 6]"));
  EXPECT_THAT(refusal(x, x_scaling, x, stream_scaling, weight), HasSubstr("a stream bf16 [4, 6]"));
  EXPECT_THAT(refusal(x, {input({5}), x_scaling.bias}, stream, stream_scaling, weight),
              HasSubstr("input 1 is f32 [5]; it must be f32 [6]"));
  EXPECT_THAT(
      refusal(x, {x_scaling.scale, input({6}, DType::bf16)}, stream, stream_scaling, weight),
      HasSubstr("input 2 is bf16 [6]"));
  EXPECT_THAT(refusal(x, x_scaling, stream, ResidualScale{input({1}), stream_scaling.bias}, weight),
              HasSubstr("input 4 is f32 [1]"));
  EXPECT_THAT(
      refusal(x, x_scaling, stream, ResidualScale{stream_scaling.scale, input({6, 1})}, weight),
      HasSubstr("input 5 is f32 [6, 1]"));
  EXPECT_THAT(refusal(x, x_scaling, stream, stream_scaling, input({7})),
              HasSubstr("input 6 is f32 [7]"));
  EXPECT_THAT(refusal(x, x_scaling, {}, {}, input({7})), HasSubstr("input 3 is f32 [7]"));
}

TEST_F(ScaledResidualRefuses, OtherNorms) {
  using ::testing::HasSubstr;
  const Value x = input({4, 6}), stream = input({4, 6}), weight = input({6});
  const ResidualScale x_scaling = vectors(), stream_scaling = vectors();
  const auto with = [&](const NormOptions& options) {
    return refusal(x, x_scaling, stream, stream_scaling, weight, options);
  };
  EXPECT_THAT(with({.epsilon = 0}), HasSubstr("an epsilon of 0"));
  EXPECT_THAT(with({.group = 3}), HasSubstr("RMSNorm of whole rows"));
  EXPECT_THAT(with({.kind = NormKind::layer}), HasSubstr("RMSNorm of whole rows"));
  EXPECT_THAT(refusal(x, x_scaling, stream, {}, weight), HasSubstr("a stream and its scale"));
  EXPECT_THAT(refusal(x, x_scaling, {}, stream_scaling, weight),
              HasSubstr("a stream and its scale"));
}

TEST_F(ScaledResidualRefuses, AGradientOfTheStreamAlone) {
  const Value x = input({4, 6});
  const ScaledResidual result =
      scaled_residual_norm(builder_, x, vectors(), {}, {}, input({6}), {});
  builder_.output(result.stream);
  const Value seed = input({4, 6});
  EXPECT_THROW(differentiate(builder_, std::vector<Seed>{{result.stream, seed, SeedKind::boundary}},
                             std::vector{x}),
               InternalError);
}

}  // namespace
}  // namespace tessera
