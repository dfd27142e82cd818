#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention/device_attention.h"
#include "ops/gemm/device_gemm.h"
#include "ops/host_target.h"
#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_linear.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A runtime for a device of AMD that is not there.
Runtime hip_runtime() {
  Target target = host_target(1);
  target.device = Device::hip;
  return Runtime(target, nullptr);
}

TEST(OnAmd, WhatIsMissingIsSaidAndNoPrecisionIsAdvisedThatIsMissingToo) {
  Runtime runtime = hip_runtime();
  const auto advises_another_device =
      AllOf(HasSubstr("\"hip\""), HasSubstr("ompute on another device"),
            Not(HasSubstr("Compute in fp32")), Not(HasSubstr("train.precision")));
  EXPECT_THAT(error_of([&] { require_device_gemm(runtime); }),
              AllOf(HasSubstr("hipBLASLt"), advises_another_device));
  const GroupedShape experts{.groups = 4, .rows = 32, .in = 16, .out = 8, .input = DType::bf16};
  EXPECT_THAT(error_of([&] { require_device_grouped(runtime, "grouped_linear", experts); }),
              AllOf(HasSubstr("grouped_linear"), HasSubstr("hipBLASLt"), advises_another_device));
  const AttentionShape shape{
      .sequences = 1, .sequence = 16, .heads = 2, .kv_heads = 2, .head_dim = 16};
  EXPECT_THAT(error_of([&] {
                require_device_attention(runtime, {shape, DType::bf16, false});
              }),
              AllOf(HasSubstr("AOTriton"), advises_another_device));
}

/// What comes out of asking each operation of a program before a run, by its name.
std::map<std::string, std::string> refusals(const Program& program, Runtime& runtime) {
  std::map<std::string, std::string> result;
  for (const Node& node : program.nodes()) {
    try {
      node.operation->require_runnable(runtime, program.specs(node.inputs));
    } catch (const Error& error) {
      result[std::string(node.operation->name())] = error.what();
    }
  }
  return result;
}

TEST(OnAmd, AllProductsOfExpertsAreAskedForBeforeARun) {
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{32, 16}, DType::bf16, {}});
  const std::vector<Value> weights{builder.parameter("weight", {{4, 8, 16}, DType::bf16, {}})};
  const Value offsets = builder.input("offsets", {{5}, DType::i32, {}});
  const std::vector<Value> y = grouped_linear(builder, x, weights, offsets);
  grouped_linear_input_gradient(builder, y, weights, offsets, x);
  grouped_linear_weight_gradient(builder, x, y[0], offsets, weights[0]);
  Runtime runtime = hip_runtime();
  const auto refused = refusals(program, runtime);
  EXPECT_EQ(refused.size(), 3U);
  for (const auto& [name, error] : refused) {
    EXPECT_THAT(error, AllOf(HasSubstr(name), HasSubstr("hipBLASLt")));
  }
}

TEST(OnAmd, KernelsOfOursAreNotRefused) {
  Runtime runtime = hip_runtime();
  require_device_grouped(runtime, "grouped_linear",
                         {.groups = 4, .rows = 32, .in = 16, .out = 8, .input = DType::f32});
  require_device_attention(
      runtime, {{.sequences = 1, .sequence = 16, .heads = 2, .kv_heads = 2, .head_dim = 16},
                DType::f32,
                false});
}

}  // namespace
}  // namespace tessera
