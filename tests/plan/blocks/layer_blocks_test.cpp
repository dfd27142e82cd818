#include "plan/blocks/layer_blocks.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/usable_memory.h"
#include "hardware/random_fill.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr MixtureBlockSizes kSmall{
    .tokens = 24, .hidden = 16, .experts = 4, .experts_per_token = 2, .expert_size = 8};

BlockMeasurement measure_here(const BlockProgram& block, int threads, const Repeats& repeats) {
  Runtime runtime(block_target(threads));
  return measure_block(block, runtime, repeats);
}

void require_memory_here(const BlockProgram& block, const std::string& advice) {
  const Runtime runtime(block_target(2));
  require_memory(block, runtime, advice);
}

TEST(MixtureBlock, CountsTheLayersProducts) {
  const BlockProgram block = mixture_block(kSmall, DType::f32);
  const double experts = 3 * 2.0 * 24 * 2 * 16 * 8;  // gate, up and down
  const double router = 2.0 * 24 * 16 * 4;
  EXPECT_DOUBLE_EQ(block.flops.forward, experts + router);
  EXPECT_DOUBLE_EQ(block.flops.useful(), 3 * (experts + router));
}

TEST(MixtureBlock, RunsForwardAndBackward) {
  const BlockProgram block = mixture_block(kSmall, DType::f32);
  const BlockMeasurement measured = measure_here(block, 2, {.warmup = 1, .measured = 3});
  ASSERT_THAT(measured.forward_seconds, SizeIs(3));
  ASSERT_THAT(measured.forward_backward_seconds, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(measured.forward_seconds[i], 0);
    EXPECT_GE(measured.forward_backward_seconds[i], measured.forward_seconds[i]);
  }
  // Weights and their gradients alone.
  EXPECT_GT(measured.arena_bytes, 2 * 4 * (3 * 4 * 16 * 8));
  EXPECT_GT(measured.peak_memory_bytes, measured.arena_bytes);
  ASSERT_THAT(measured.integer_outputs, SizeIs(1));
  const auto& counts = measured.integer_outputs[0];
  EXPECT_THAT(counts, SizeIs(4));
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 24 * 2);
}

TEST(MixtureBlock, CountsItsParameters) {
  // The router, and gate, up and down of every expert.
  EXPECT_EQ(mixture_block(kSmall, DType::f32).parameters, 4 * 16 + 4 * 3 * 16 * 8);
  EXPECT_EQ(attention_block({.tokens = 8}, DType::f32).parameters, 0);
}

TEST(BlockMemory, IsWhatRunningItTakes) {
  const AttentionBlockSizes attention{.tokens = 40, .heads = 2, .kv_heads = 1, .head_size = 8};
  for (const int threads : {1, 2}) {
    for (const BlockProgram& block :
         {mixture_block(kSmall, DType::f32), attention_block(attention, DType::f32)}) {
      EXPECT_EQ(planned_bytes(block, block_target(threads)),
                measure_here(block, threads, {.warmup = 1, .measured = 1}).arena_bytes);
      require_memory(block, Runtime(block_target(threads)), "");
    }
  }
}

TEST(BlockMemory, WhatDoesNotFitIsRefused) {
  MixtureBlockSizes sizes = kSmall;
  sizes.experts = int64_t{1} << 24;
  const auto refusal = [&] {
    return error_of(
        [&] { require_memory_here(mixture_block(sizes, DType::f32), "lower --experts"); });
  };
  sizes.expert_size = int64_t{1} << 16;  // 140 TB of weights and gradients
  EXPECT_THAT(refusal(), HasSubstr(usable_memory().text()));
  EXPECT_THAT(refusal(), HasSubstr("lower --experts"));
  sizes.hidden = sizes.expert_size = int64_t{1} << 24;  // more bytes than an integer holds
  EXPECT_THAT(refusal(), HasSubstr("more than this machine has memory for"));
  // Every tensor can be counted, but the 2^64 multiply-adds of a product not as an integer.
  sizes = {.tokens = int64_t{1} << 21,
           .hidden = int64_t{1} << 20,
           .experts = 64,
           .experts_per_token = 8,
           .expert_size = int64_t{1} << 20};
  EXPECT_DOUBLE_EQ(mixture_block(sizes, DType::f32).flops.forward,
                   2 * (3 * std::ldexp(1.0, 64) + std::ldexp(1.0, 47)));
  EXPECT_THAT(refusal(), HasSubstr(usable_memory().text()));
  // What is given would fit alone.
  const AttentionBlockSizes attention{
      .tokens = 64, .heads = 1, .kv_heads = 1, .head_size = usable_memory().bytes / (64 * 4 * 5)};
  EXPECT_THAT(
      error_of([&] { require_memory_here(attention_block(attention, DType::f32), "lower it"); }),
      HasSubstr("lower it"));
}

TEST(MixtureBlock, RoutingMayBeUniform) {
  MixtureBlockSizes sizes = kSmall;
  sizes.uniform_routing = true;
  const BlockMeasurement measured =
      measure_here(mixture_block(sizes, DType::f32), 1, {.warmup = 0, .measured = 1});
  EXPECT_THAT(measured.integer_outputs[0], Each(12));
  sizes.experts_per_token = 5;
  EXPECT_THAT(error_of([&] { mixture_block(sizes, DType::f32); }),
              HasSubstr("5 experts a token of 4 experts"));
}

TEST(AttentionBlock, CountsWhatIsAttended) {
  AttentionBlockSizes sizes{.tokens = 32, .heads = 4, .kv_heads = 2, .head_size = 8};
  const double pairs = 32.0 * 33 / 2;
  // Two products forward and four backward, each 2 operations a channel.
  EXPECT_DOUBLE_EQ(attention_block(sizes, DType::f32).flops.forward, 2 * 2 * 4 * 8 * pairs);
  EXPECT_DOUBLE_EQ(attention_block(sizes, DType::f32).flops.useful(), 6 * 2 * 4 * 8 * pairs);
  sizes.documents = 4;
  EXPECT_NEAR(attention_block(sizes, DType::f32).flops.forward, 2 * 2 * 4 * 8 * 4 * (8.0 * 9 / 2),
              1e-6);
  sizes.documents = 32;
  EXPECT_NEAR(attention_block(sizes, DType::f32).flops.forward, 2 * 2 * 4 * 8 * 32.0, 1e-6);
}

TEST(AttentionBlock, RunsWithAndWithoutDocuments) {
  AttentionBlockSizes sizes{.tokens = 40, .heads = 2, .kv_heads = 1, .head_size = 8};
  for (const int64_t documents : {0, 1, 3, 40}) {
    sizes.documents = documents;
    const BlockMeasurement measured =
        measure_here(attention_block(sizes, DType::f32), 2, {.warmup = 0, .measured = 2});
    EXPECT_THAT(measured.forward_backward_seconds, SizeIs(2));
    EXPECT_GT(measured.arena_bytes, 4 * 40 * (2 + 1 + 1) * 8);
  }
}

TEST(AttentionBlock, RefusesSizesThatContradictEachOther) {
  EXPECT_THAT(error_of([] { attention_block({.heads = 3, .kv_heads = 2}, DType::f32); }),
              HasSubstr("3 heads are not a multiple of 2"));
  EXPECT_THAT(error_of([] { attention_block({.tokens = 4, .documents = 5}, DType::f32); }),
              HasSubstr("5 documents in 4 tokens"));
}

TEST(FillNormal, RepeatsAMillionNumbers) {
  const Tensor tensor({3000, 1000}, DType::f32);
  fill_normal(tensor, "x", 2, 2);
  double sum = 0;
  double squares = 0;
  for (const float value : tensor.values<float>()) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(sum / 3e6, 0, 0.02);
  EXPECT_NEAR(squares / 3e6, 4, 0.05);
  EXPECT_EQ(tensor.values<float>()[5], tensor.values<float>()[5 + 1048573]);
  EXPECT_NE(tensor.values<float>()[5], tensor.values<float>()[1005]);
  const Tensor other({1000}, DType::f32);
  fill_normal(other, "x", 2, 1);
  EXPECT_EQ(other.values<float>()[999], tensor.values<float>()[999]);
}

}  // namespace
}  // namespace tessera
