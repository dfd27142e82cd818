#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "pipeline/run_trace.h"

namespace tessera {
namespace {

/// A trace of version 2 as Tessera 0.1.0 wrote it, which later ones read: of the second step of a
/// mixture of experts of one layer (hidden_size 32, 4 experts of which 2 a token, vocabulary 257,
/// two sequences of 32, recompute "experts", bf16, two threads). Of its 80 events six are kept, of
/// which each shows what others do not, and the products that they name. It is not written anew; a
/// new version of the format gets a file of its own.
const std::filesystem::path kFile =
    std::filesystem::path(TESSERA_SOURCE) / "tests/fixtures/golden/trace.json";

/// Of one thread, or of two.
GemmShape product(int64_t m, int64_t n, int64_t k, int threads) {
  return {.m = m, .n = n, .k = k, .input = DType::bf16, .output = DType::bf16, .threads = threads};
}

std::vector<GemmShape> products() {
  std::vector<GemmShape> result{product(32, 16, 32, 1),  product(32, 32, 16, 1),
                                product(64, 32, 257, 2), product(64, 257, 32, 2),
                                product(257, 32, 64, 2), product(48, 16, 32, 1),
                                product(32, 16, 32, 1),  product(32, 16, 32, 1),
                                product(32, 32, 16, 1),  product(32, 16, 32, 1)};
  const std::vector<std::array<int64_t, 3>> leading{
      {1024, 32, 16}, {32, 32, 1024}, {514, 32, 32}, {32, 32, 257}, {514, 32, 32},
      {32, 32, 16},   {32, 32, 16},   {128, 32, 16}, {32, 32, 128}, {128, 32, 16}};
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].lda = leading[i][0];
    result[i].ldb = leading[i][1];
    result[i].ldc = leading[i][2];
  }
  for (const size_t i : {0, 1, 3, 4, 7, 8, 9}) result[i].output = DType::f32;
  for (const size_t i : {4, 9}) result[i].transpose_a = true;
  for (const size_t i : {1, 3, 5, 6, 8}) result[i].transpose_b = true;
  for (const size_t i : {0, 4, 7, 9}) result[i].accumulate = true;
  return result;
}

/// Times in microseconds, as they stand in the file.
StepTrace expected_trace() {
  return {.origin = {.processor = "Intel(R) Xeon(R) Processor (family 6, model 207)",
                     .features = {"avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni",
                                  "avx512_bf16", "avx512_fp16"},
                     .threads = 2,
                     .precision = Precision::bf16,
                     .gemm_peak = 27484081003.082527,
                     .tokens = 64},
          .number = 2,
          .start = 27.008,
          .duration = 7699.503999999999,
          .events = {{.name = "next_batches",
                      .block = "data",
                      .phase = "step",
                      .start = 27.798000000000002,
                      .duration = 9.429},
                     {.name = "attention",
                      .block = "attention",
                      .phase = "forward",
                      .layer = 0,
                      .start = 233.785,
                      .duration = 212.948,
                      .flops = 135168,
                      .bytes = 17152,
                      .shape = "[64, 32]",
                      .products = {{0, 4}, {1, 4}}},
                     {.name = "linear_cross_entropy",
                      .block = "head",
                      .phase = "forward",
                      .start = 680.636,
                      .duration = 266.13700000000006,
                      .flops = 3158016,
                      .backward_flops = 2105344,
                      .bytes = 91208,
                      .shape = "[1]",
                      .products = {{2, 1}, {3, 1}, {4, 1}}},
                     {.name = "grouped_linear",
                      .block = "experts",
                      .phase = "recompute",
                      .layer = 0,
                      .start = 1001.304,
                      .duration = 67.47100000000016,
                      .flops = 262144,
                      .bytes = 24596,
                      .shape = "[128, 16]",
                      .products = {{5, 4}, {6, 4}}},
                     {.name = "attention_gradient",
                      .block = "attention",
                      .phase = "backward",
                      .layer = 0,
                      .start = 1477.854,
                      .duration = 6019.718,
                      .flops = 270336,
                      .repeated_flops = 67584,
                      .bytes = 33536,
                      .shape = "[64, 32]",
                      .products = {{7, 8}, {8, 8}, {9, 4}}},
                     {.name = "adamw",
                      .block = "optimizer",
                      .phase = "step",
                      .start = 7695.173,
                      .duration = 30.144000000000176,
                      .bytes = 808704}},
          .products = products()};
}

TEST(StepTrace, OfAnEarlierProgramIsReadInFull) {
  RunTrace run = read_trace(kFile);
  ASSERT_EQ(run.ranks.size(), 1U);
  EXPECT_TRUE(run.ranks[0].list.empty());
  StepTrace read = std::move(run.ranks[0].step);
  const StepTrace expected = expected_trace();
  const auto near = [](double& seconds, double microseconds) {
    EXPECT_NEAR(seconds, microseconds * 1e-6, 1e-15);
    seconds = microseconds;
  };
  near(read.start, expected.start);
  near(read.duration, expected.duration);
  ASSERT_EQ(read.events.size(), expected.events.size());
  for (size_t i = 0; i < read.events.size(); ++i) {
    near(read.events[i].start, expected.events[i].start);
    near(read.events[i].duration, expected.events[i].duration);
    EXPECT_EQ(read.events[i], expected.events[i]) << expected.events[i].name;
  }
  EXPECT_EQ(read, expected);
}

}  // namespace
}  // namespace tessera
