// Rows behind the last offset: experts over several ranks have memory for more rows than come.
#include <cmath>

#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/activation/activation.h"
#include "ops/host_target.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/token_rows.h"
#include "support/operation_run.h"

namespace tessera {
namespace {

constexpr int64_t kTokens = 12;
constexpr int64_t kWidth = 16;
constexpr int64_t kRows = 40;
constexpr int32_t kUsed = 23;  // of two choices of each token, the last has no row

/// The layer of three experts, and its gradients.
Program experts(DType dtype) {
  Program program;
  Builder builder(program);
  const auto input = [&](const char* name, const Shape& shape, DType type) {
    return builder.input(name, {shape, type, {}});
  };
  const Value x = builder.parameter("x", {{kTokens, kWidth}, dtype, {}});
  const Value weights = builder.parameter("w", {{kTokens, 2}, accumulation_dtype(dtype), {}});
  const Value inward[] = {builder.parameter("gate", {{3, kWidth, kWidth}, dtype, {}}),
                          builder.parameter("up", {{3, kWidth, kWidth}, dtype, {}})};
  const Value outward[] = {builder.parameter("down", {{3, kWidth, kWidth}, dtype, {}})};
  const Value offsets = input("offsets", {4}, DType::i32);
  const TokenIndices indices{input("tokens", {kRows}, DType::i32),
                             input("rows", {kTokens, 2}, DType::i32)};
  const std::vector<Value> hidden =
      grouped_linear(builder, gather_tokens(builder, x, indices), inward, offsets);
  const Value activated =
      gated_activation(builder, hidden[0], hidden[1], Activation::silu, offsets);
  const Value results = grouped_linear(builder, activated, outward, offsets)[0];
  const Value sums = reduce_experts(builder, results, weights, indices);
  builder.output(sums);
  const Seed seeds[] = {{sums, builder.input("seed", builder.spec(sums)), SeedKind::boundary}};
  differentiate(builder, seeds);
  return program;
}

bool are_rows(const Shape& shape) { return shape[0] == kRows && shape.rank() == 2; }

/// What a node reads. Rows behind the used ones may be NaN.
Tensor operand(const Spec& spec, const std::string& name, bool spoiled) {
  if (spec.dtype != DType::i32) {
    const Tensor numbers = testing::drawn(spec, name);
    if (spoiled && are_rows(spec.shape)) {
      const Tensor rest = numbers.slice(kUsed, kRows);
      testing::fill_with_nan(rest.raw(), rest.bytes());
    }
    return numbers;
  }
  const Tensor tensor(spec.shape, spec.dtype);
  const std::span<int32_t> values = tensor.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<int32_t>(i);
    values[i] = row >= kUsed ? -1 : spec.shape.rank() == 2 ? row : row / 2;
  }
  if (spec.shape == Shape({4})) std::ranges::copy(std::vector{0, 9, 9, kUsed}, values.begin());
  return tensor;
}

/// Runs a node's operation on memory that is NaN.
std::vector<Tensor> run_node(const Program& program, const Node& node, Kernels kernels,
                             bool spoiled) {
  Runtime runtime(host_target(2, kernels));
  std::vector<Tensor> inputs, outputs;
  for (const Value input : node.inputs) {
    inputs.push_back(operand(program.spec(input), program.info(input).name, spoiled));
  }
  for (const Value output : node.outputs) {
    outputs.emplace_back(program.spec(output).shape, program.spec(output).dtype);
    testing::fill_with_nan(outputs.back().raw(), outputs.back().bytes());
  }
  const int64_t bytes =
      node.operation->workspace_bytes(runtime.target(), program.specs(node.inputs));
  const Tensor workspace({bytes + 64}, DType::u8);
  testing::fill_with_nan(workspace.raw(), bytes);
  node.operation->run({runtime, inputs, outputs, {workspace.raw(), static_cast<size_t>(bytes)}});
  for (const int updated : node.operation->updated_inputs()) {
    outputs.push_back(inputs[static_cast<size_t>(updated)]);
  }
  return outputs;
}

/// NaN in a result are what was there before, or came from spoiled rows that are not used.
TEST(UnusedRows, AreNeitherReadNorWritten) {
  std::set<std::string> of_rows;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Program program = experts(dtype);
    for (const Node& node : program.nodes()) {
      for (const int run : {0, 1, 2, 3}) {
        const Kernels kernels = run < 2 ? Kernels::plain : Kernels::fast;
        for (const Tensor& result : run_node(program, node, kernels, run % 2 == 1)) {
          const std::string name(node.operation->name());
          const std::vector<double> numbers = testing::numbers_of(result);
          const bool rows = are_rows(result.shape());
          if (rows) of_rows.insert(name);
          for (size_t i = 0; i < numbers.size(); ++i) {
            ASSERT_EQ(std::isnan(numbers[i]), rows && i >= kUsed * kWidth)
                << name << " in " << dtype_name(dtype) << ", element " << i;
          }
        }
      }
    }
  }
  EXPECT_EQ(of_rows,
            (std::set<std::string>{"gather_tokens", "grouped_linear", "swiglu", "swiglu_gradient",
                                   "grouped_linear_input_gradient", "reduce_experts_gradient"}));
}

}  // namespace
}  // namespace tessera
