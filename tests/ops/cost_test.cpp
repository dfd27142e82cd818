#include <gtest/gtest.h>

#include "ops/attention/attention.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/loss/cross_entropy.h"
#include "ops/moe/grouped_linear.h"
#include "program/program.h"

namespace tessera {
namespace {

/// The bytes that operations state which read and write an operand.
class CostBytes : public ::testing::Test {
 protected:
  Value input(const char* name, const Shape& shape, DType dtype) {
    return builder_.input(name, {shape, dtype, {}});
  }
  Value parameter(const Shape& shape) {
    return builder_.parameter("weight", {shape, DType::bf16, {}});
  }
  /// Of the last operation of that name.
  double bytes(std::string_view name) const {
    double result = 0;
    for (const Node& node : program_.nodes()) {
      if (node.operation->name() != name) continue;
      result = node_cost(program_, node).bytes;
    }
    return result;
  }

  double flops(std::string_view name) const {
    double result = 0;
    for (const Node& node : program_.nodes()) {
      if (node.operation->name() != name) continue;
      result += node_cost(program_, node).flops;
    }
    return result;
  }

  Program program_;
  Builder builder_{program_};
};

TEST_F(CostBytes, WeightGradientsReadAndWriteTheMainGradient) {
  const Value x = input("x", {24, 16}, DType::bf16);
  const Value gradient = input("gradient", {24, 8}, DType::bf16);
  constexpr double kOperands = 2 * 24 * 16 + 2 * 24 * 8;
  linear_weight_gradient(builder_, x, gradient, parameter({8, 16}));
  EXPECT_EQ(bytes("linear_weight_gradient"), kOperands + 2 * (4 * 8 * 16));
  // A new value is written only.
  linear_weight_gradient(builder_, x, gradient, input("no parameter", {8, 16}, DType::bf16));
  EXPECT_EQ(bytes("linear_weight_gradient"), kOperands + 4 * 8 * 16);
}

TEST_F(CostBytes, GroupedWeightGradientsReadAndWriteTheMainGradient) {
  const Value x = input("x", {24, 16}, DType::bf16);
  const Value gradient = input("gradient", {24, 8}, DType::bf16);
  const Value offsets = input("offsets", {4}, DType::i32);
  grouped_linear_weight_gradient(builder_, x, gradient, offsets, parameter({3, 8, 16}));
  EXPECT_EQ(bytes("grouped_linear_weight_gradient"),
            2 * 24 * 16 + 2 * 24 * 8 + 4 * 4 + 2 * (4 * 3 * 8 * 16));
}

/// Rows count as often as an even load has them, whatever the bound; each is multiplied with the
/// matrices of its own expert alone.
TEST_F(CostBytes, RowsOfExpertsCountAsOftenAsAnEvenLoadHasThem) {
  constexpr double kExpected = 12;
  const auto bounded = [&](const char* name, int64_t width) {
    const Value rows = input(name, {24, width}, DType::bf16);
    builder_.set_rows(rows, {.expected = 12, .key = "parallel.expert_rows_bound"});
    return rows;
  };
  const Value x = bounded("x", 16);
  const std::vector<Value> weights{parameter({3, 8, 16}), parameter({3, 10, 16})};
  const Value offsets = input("offsets", {4}, DType::i32);
  grouped_linear(builder_, x, weights, offsets);
  EXPECT_EQ(flops("grouped_linear"), 2 * kExpected * 16 * (8 + 10));
  const std::vector<Value> gradients{bounded("a", 8), bounded("b", 10)};
  grouped_linear_input_gradient(builder_, gradients, weights, offsets, x);
  EXPECT_EQ(flops("grouped_linear_input_gradient"), 2 * kExpected * 16 * (8 + 10));
  grouped_linear_weight_gradient(builder_, x, gradients[1], offsets, weights[1]);
  EXPECT_EQ(flops("grouped_linear_weight_gradient"), 2 * kExpected * 16 * 10);
  EXPECT_EQ(bytes("grouped_linear_weight_gradient"),
            2 * kExpected * (16 + 10) + 4 * 4 + 2 * (4 * 3 * 10 * 16));
}

TEST_F(CostBytes, TheHeadReadsAndWritesTheMainGradient) {
  const Value x = input("x", {24, 16}, DType::bf16);
  const Value targets = input("targets", {24}, DType::i32);
  const Value seed = input("seed", {1}, DType::f32);
  linear_cross_entropy_with_gradient(builder_, x, parameter({32, 16}), targets, seed);
  // x and its gradient, the weight, targets, the seed and the loss, two numbers a token.
  EXPECT_EQ(bytes("linear_cross_entropy"),
            2 * 2 * 24 * 16 + 2 * 32 * 16 + 4 * 24 + 4 + 4 + 2 * 4 * 24 + 2 * (4 * 32 * 16));
}

TEST_F(CostBytes, AccumulatingReadsAndWritesTheSum) {
  accumulate(builder_, input("sum", {24}, DType::f32), input("addend", {24}, DType::bf16));
  EXPECT_EQ(bytes("accumulate"), 2 * 4 * 24 + 2 * 24);
}

TEST_F(CostBytes, TheEmbeddingsGradientReadsAndWritesARowAToken) {
  const Value table = parameter({1000, 16});
  const Value result = embedding(builder_, table, input("ids", {24}, DType::i32));
  const Value gradient = input("gradient", {24, 16}, DType::bf16);
  const Node self = program_.nodes().back();
  self.operation->gradient(builder_, self, std::span(&gradient, 1));
  ASSERT_TRUE(bool(result));
  EXPECT_EQ(bytes("embedding_gradient"), 4 * 24 + 2 * 24 * 16 + 2 * (4 * 24 * 16));
}

TEST_F(CostBytes, CachedAttentionReadsTheCachesAndWritesTheNewRows) {
  const AttentionOptions options{.sequence = 4, .heads = 2, .kv_heads = 1, .head_dim = 8};
  const Value q = input("q", {4, 16}, DType::bf16);
  const Value k = input("k", {4, 8}, DType::bf16);
  const Value v = input("v", {4, 8}, DType::bf16);
  cached_attention(builder_, q, k, v, input("keys", {100, 8}, DType::bf16),
                   input("values", {100, 8}, DType::bf16), input("at", {1}, DType::i32), options);
  // q and the result, k and v twice, both caches, the position.
  EXPECT_EQ(bytes("cached_attention"),
            2 * (2 * 4 * 16) + 2 * 2 * (2 * 4 * 8) + 2 * (2 * 100 * 8) + 4);
}

}  // namespace
}  // namespace tessera
