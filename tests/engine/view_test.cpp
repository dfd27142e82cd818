#include "program/view.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/executor.h"
#include "engine/rematerialize.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/host_target.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"
#include "support/emulated.h"
#include "support/gradient_check.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::FixedInputs;

/// Two matrices that lie in one flat value, as parameters lie in their unit.
std::vector<Value> two_linears(Builder& builder, Value x, Value flat) {
  const Value first = view(builder, flat, 3, {4, 5});
  const Value second = view(builder, flat, 24, {2, 4});
  return {linear(builder, linear(builder, x, first), second)};
}

/// A parameter's main gradient after a run in which `given` are random numbers.
std::vector<float> main_gradient_of(const Program& program, Value parameter,
                                    std::initializer_list<Value> given) {
  Runtime runtime(host_target(1));
  testing::ProgramRun run(program, runtime);
  for (const Value value : given) {
    const ValueInfo& info = program.info(value);
    run.bind(value, testing::random_tensor(info.spec.shape, info.spec.dtype, info.name));
  }
  run.run();
  const auto values = run[program.main_gradient(parameter)].values<float>();
  return {values.begin(), values.end()};
}

TEST(View, GradientsOfPartsOfAParameterStandInItsOwn) {
  check_gradients([](Builder& builder,
                     std::span<const Value> in) { return two_linears(builder, in[0], in[1]); },
                  {{6, 5}, {40}});
}

TEST(View, GradientsOfPartsOfAComputedValueFlowThroughIt) {
  check_gradients(
      [](Builder& builder, std::span<const Value> in) {
        return two_linears(builder, in[0], scale(builder, in[1], 1.5));
      },
      {{6, 5}, {40}});
}

TEST(View, GradientsOfOverlappingPartsAndOfTheWholeAddUp) {
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value flat = scale(builder, in[1], 1.5);
        const Value first = view(builder, flat, 0, {4, 5});
        const Value second = view(builder, view(builder, flat, 10, {20}), 2, {4, 4});
        return {linear(builder, linear(builder, in[0], first), second), scale(builder, flat, 2)};
      },
      {{6, 5}, {30}});
}

TEST(View, PartsOfAComputedValueHaveOneGradientOfTheWhole) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{6, 8}, DType::f32, {}});
  const Value flat = scale(builder, builder.parameter("flat", {{4 * 64}, DType::f32, {}}), 1);
  Value value = x;
  for (int64_t i = 0; i < 4; ++i)
    value = linear(builder, value, view(builder, flat, i * 64, {8, 8}));
  builder.output(value);
  const Seed seeds[] = {{value, builder.input("seed", builder.spec(value))}};
  differentiate(builder, seeds);
  int wholes = 0;
  for (const Node& node : program.nodes()) {
    for (const Value output : node.outputs) {
      wholes += node.phase == Phase::backward && program.spec(output).shape == Shape{4 * 64};
    }
  }
  EXPECT_EQ(wholes, 2) << "the parts joined, and that scaled";
}

/// Parts that overlap, leave gaps and begin anywhere. There are more of them than one launch takes.
RC_GTEST_PROP(JoinParts, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const auto whole = *rc::gen::element<int64_t>(1, 37, 4096, 5000);
  const auto step = *rc::gen::element<int64_t>(1, 8);  // packs of parts and whole lie alike, or not
  const auto count = *rc::gen::element<size_t>(1, 3, 40, 150);
  std::vector<int64_t> firsts;
  std::vector<testing::RunInput> inputs;
  for (size_t i = 0; i < count; ++i) {
    const auto first = *rc::gen::inRange<int64_t>(0, whole) / step * step;
    firsts.push_back(first);
    inputs.push_back({{*rc::gen::inRange<int64_t>(1, std::min<int64_t>(whole - first, 700) + 1)}});
  }
  const auto join = [&](Builder& builder, std::span<const Value> parts) -> std::vector<Value> {
    return {join_parts(builder, {parts.begin(), parts.end()}, firsts, {whole})};
  };
  testing::expect_device_agrees(
      join, inputs, {.dtype = *rc::gen::element(DType::f32, DType::bf16), .backward = false});
}

TEST(View, AViewOfAViewIsOneOfTheWhole) {
  Program program;
  Builder builder(program);
  const Value flat = builder.parameter("flat", {{100}, DType::bf16, {}});
  const Value half = view(builder, flat, 50, {5, 10});
  const Value part = view(builder, half, 7, {3});
  ASSERT_TRUE(program.info(part).view.has_value());
  EXPECT_EQ(program.info(part).view->base, flat);
  EXPECT_EQ(program.info(part).view->byte_offset, 2 * 57);
  EXPECT_EQ(program.base(part), flat);
  EXPECT_EQ(program.base(flat), flat);
  const Value gradient = builder.main_gradient(part);
  EXPECT_EQ(program.base(gradient), builder.main_gradient(flat));
  EXPECT_EQ(program.info(gradient).view->byte_offset, 4 * 57);
  EXPECT_THROW(view(builder, flat, 98, {3}), InternalError);
  EXPECT_THROW(view(builder, flat, -1, {3}), InternalError);
}

TEST(View, LiesInTheMemoryOfWhatItIsAPartOf) {
  Program program;
  Builder builder(program);
  const Value flat = builder.parameter("flat", {{16}, DType::f32, {}});
  const Value computed = scale(builder, flat, 2.0);
  const Value part = view(builder, computed, 4, {2, 3});
  const Value result = scale(builder, part, 1.0);
  builder.output(result);
  Runtime runtime(host_target(1));
  const Action whole;
  Executor executor({&program}, std::span(&whole, 1), runtime);
  for (int i = 0; i < 16; ++i) executor.tensor(flat).data<float>()[i] = static_cast<float>(i);
  executor.run(whole);
  EXPECT_EQ(executor.tensor(part).raw(), executor.tensor(computed).raw() + 4 * 4);
  EXPECT_EQ(executor.tensor(result).data<float>()[5], 2 * 9);
}

TEST(View, OfARecomputedValueIsMadeAgainWithIt) {
  const auto gradients = [](const Recompute& recompute) {
    Program program;
    Builder builder(program);
    const Value x = builder.parameter("x", {{6, 5}, DType::f32, {}});
    const Value flat = builder.parameter("flat", {{40}, DType::f32, {}});
    Value output;
    {
      const auto scope = builder.scope("attention", Block::attention);
      output = two_linears(builder, x, scale(builder, flat, 1.5))[0];
    }
    builder.output(output);
    const Seed seeds[] = {{output, builder.state("seed", builder.spec(output))}};
    differentiate(builder, seeds);
    rematerialize(builder, recompute);
    return main_gradient_of(program, flat, {x, flat, seeds[0].gradient});
  };
  EXPECT_EQ(gradients({.attention = true}), gradients({}));
}

TEST(ComputedWeights, OfAnEmbeddingGetTheirGradient) {
  std::vector<int32_t> ids{0, 4, 2, 4, 4, 1};
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value tokens = builder.input("ids", {{6}, DType::i32, {}});
        return {embedding(builder, scale(builder, in[0], 0.5), tokens)};
      },
      {{5, 3}},
      [&] {
        return FixedInputs{{"ids", Tensor::wrap(ids.data(), {6}, DType::i32)}};
      });
}

TEST(ComputedWeights, OfAHeadGetTheirGradient) {
  std::vector<int32_t> targets{0, 4, -1, 4, 2, 1, 3};
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value ids = builder.input("targets", {{7}, DType::i32, {}});
        const Value seed = builder.input("seed", {{1}, DType::f64, {}});
        const Value weight = scale(builder, in[1], 0.5);
        return {linear_cross_entropy_with_gradient(builder, in[0], weight, ids, seed, 1e-2).loss};
      },
      {{7, 4}, {5, 4}},
      [&] {
        return FixedInputs{{"targets", Tensor::wrap(targets.data(), {7}, DType::i32)}};
      },
      {.seed = "seed"});
}

/// A weight that a program computes (a part of a gathered unit, say) has the gradient that the
/// parameter itself would have, without being rounded on the way.
TEST(ComputedWeights, HaveTheGradientsOfParametersInBfloat16) {
  const auto gradient = [](const auto& weight_of) {
    Program program;
    Builder builder(program);
    const Value x = builder.input("x", {{48, 32}, DType::bf16, {}});
    const Value flat = builder.parameter("flat", {{32 * 32}, DType::bf16, {}});
    const Value output = linear(builder, x, weight_of(builder, flat));
    builder.output(output);
    const Seed seeds[] = {{output, builder.input("seed", builder.spec(output))}};
    differentiate(builder, seeds);
    return main_gradient_of(program, flat, {x, flat, seeds[0].gradient});
  };
  const auto part = [](Builder& builder, Value flat) { return view(builder, flat, 0, {32, 32}); };
  const auto copy = [&](Builder& builder, Value flat) {
    return part(builder, scale(builder, flat, 1));
  };
  EXPECT_EQ(gradient(copy), gradient(part));
}

}  // namespace
}  // namespace tessera
