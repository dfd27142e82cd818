#include "ops/linear/linear.h"

#include <gtest/gtest.h>

#include "support/gradient_check.h"

namespace tessera {
namespace {

using testing::check_gradients;

TEST(Linear, GradientsAgreeWithFiniteDifferences) {
  for (const int64_t tokens : {1, 5}) {
    check_gradients(
        [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {linear(builder, in[0], in[1])};
        },
        {{tokens, 3}, {4, 3}});
  }
}

TEST(Linear, SeveralWeightsShareOneInputGradient) {
  check_gradients(
      [](Builder& builder, std::span<const Value> in) {
        return linears(builder, in[0], in.subspan(1));
      },
      {{6, 3}, {4, 3}, {2, 3}, {5, 3}});
}

TEST(Linear, AValueUsedTwiceGetsTheSumOfItsGradients) {
  check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        const Value first = linear(builder, in[0], in[1]);
        return {linear(builder, first, in[1]), linear(builder, first, in[2])};
      },
      {{3, 4}, {4, 4}, {2, 4}});
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 3}, DType::f32, {}});
  const Value weight = builder.parameter("weight", {{2, 5}, DType::f32, {}});
  const Value narrow = builder.parameter("narrow", {{2, 3}, DType::bf16, {}});
  EXPECT_THROW(linear(builder, x, weight), InternalError);
  EXPECT_THROW(linear(builder, x, narrow), InternalError);
}

}  // namespace
}  // namespace tessera
