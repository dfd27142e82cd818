#include "ops/elementwise/elementwise.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/host_target.h"
#include "support/emulated.h"
#include "support/gradient_check.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

using testing::check_gradients;
using testing::random_tensor;

TEST(Elementwise, GradientsAgreeWithFiniteDifferences) {
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value parts[] = {in[0], in[1], scale(builder, in[0], -1.5)};
        return {add(builder, parts, DType::f64), cast(builder, in[1], DType::f64)};
      },
      {{3, 7}, {3, 7}});
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {clamp(builder, in[0], 0.8)};
      },
      {{5, 9}});
}

TEST(Elementwise, ClampLimitsAndLetsNoGradientThroughWhereItBinds) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{4}, DType::f32, {}});
  const Value y = clamp(builder, x, 2);
  builder.output(y);
  const Seed seed{y, builder.input("seed", builder.spec(y))};
  differentiate(builder, std::span(&seed, 1));
  testing::ProgramRun frame(program, runtime);
  const auto bind = [&](Value value, std::vector<float> values) {
    const Tensor tensor({4}, DType::f32);
    std::copy(values.begin(), values.end(), tensor.data<float>());
    frame.bind(value, tensor);
  };
  bind(x, {-3, -1, 2, 5});
  bind(seed.gradient, {10, 20, 30, 40});
  bind(program.main_gradient(x), {1, 1, 1, 1});
  frame.run();
  const auto result = frame[y].values<float>();
  EXPECT_EQ(std::vector<float>(result.begin(), result.end()), (std::vector<float>{-2, -1, 2, 2}));
  const auto gradient = frame[program.main_gradient(x)].values<float>();
  EXPECT_EQ(std::vector<float>(gradient.begin(), gradient.end()),
            (std::vector<float>{1, 21, 31, 1}));
}

RC_GTEST_PROP(Elementwise, ASumIsTakenWideAndRoundedOnce, ()) {
  const auto count = *rc::gen::inRange<int64_t>(1, 6000);
  const int threads = *rc::gen::inRange(1, 4);
  Runtime runtime(host_target(threads));
  Program program;
  Builder builder(program);
  std::vector<Value> addends;
  for (const DType dtype : {DType::bf16, DType::f32, DType::bf16}) {
    addends.push_back(builder.input("x" + std::to_string(addends.size()), {{count}, dtype, {}}));
  }
  const Value sum = add(builder, addends, DType::bf16);
  builder.output(sum);
  testing::ProgramRun run(program, runtime);
  std::vector<Tensor> tensors;
  for (const Value addend : addends) {
    const Spec& spec = program.spec(addend);
    tensors.push_back(random_tensor(spec.shape, spec.dtype, program.info(addend).name));
    run.bind(addend, tensors.back());
  }
  run.run();
  for (int64_t i = 0; i < count; ++i) {
    const float expected = static_cast<float>(tensors[0].data<BFloat16>()[i]) +
                           tensors[1].data<float>()[i] +
                           static_cast<float>(tensors[2].data<BFloat16>()[i]);
    RC_ASSERT(run[sum].data<BFloat16>()[i].bits == BFloat16(expected).bits);
  }
}

/// Every element-wise operation with its gradient: sums of both types, scale, clamp, casts; in[0]
/// also gets the sum of several gradients.
TEST(Elementwise, BitsDoNotDependOnTheThreads) {
  const auto function = [](Builder& builder, std::span<const Value> in) {
    const Value parts[] = {in[0], scale(builder, in[0], -1.7), in[1], clamp(builder, in[0], 0.8)};
    return std::vector<Value>{add(builder, parts, DType::bf16), add(builder, parts, DType::f32),
                              cast(builder, in[1], DType::bf16)};
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(
              testing::run_program(function, {{{150001}}, {{150001}, true}},
                                   {.dtype = dtype, .kernels = kernels, .threads = threads}));
        },
        testing::FastKernel::same_bits);
  }
}

TEST(Elementwise, RefusesWhatDoesNotFit) {
  Program program;
  Builder builder(program);
  const Value a = builder.input("a", {{4}, DType::f32, {}});
  const Value b = builder.input("b", {{5}, DType::f32, {}});
  const Value ids = builder.input("ids", {{4}, DType::i32, {}});
  const Value unequal[] = {a, b};
  EXPECT_THROW(add(builder, unequal, DType::f32), InternalError);
  EXPECT_THROW(add(builder, {}, DType::f32), InternalError);
  EXPECT_THROW(scale(builder, ids, 2), InternalError);
  EXPECT_THROW(clamp(builder, a, -1), InternalError);
  EXPECT_THROW(cast(builder, ids, DType::f32), InternalError);
  EXPECT_THROW(accumulate(builder, a, b), InternalError);
}

RC_GTEST_PROP(Elementwise, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const Shape shape{*rc::gen::inRange<int64_t>(1, 6000)};
  const DType of_sum = *rc::gen::element(DType::f32, DType::bf16);
  testing::expect_device_agrees(
      [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value scaled = scale(builder, in[0], -1.5);
        const Value parts[] = {scaled, in[1], clamp(builder, in[0], 0.8)};
        return {add(builder, parts, of_sum), cast(builder, in[1], DType::f32)};
      },
      {{shape}, {shape, true}}, {.dtype = *rc::gen::element(DType::f32, DType::bf16)});
}

}  // namespace
}  // namespace tessera
