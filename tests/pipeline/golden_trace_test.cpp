#include <array>
#include <filesystem>
#include <string>
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
const std::filesystem::path kFolder =
    std::filesystem::path(TESSERA_SOURCE) / "tests/fixtures/golden";

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
  RunTrace run = read_trace(kFolder / "trace.json");
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

/// A trace of version 3: of the third step of two pipelines that split tensors, of two stages with
/// two chunks each. Of its four ranks two are kept, and of these what each kind of event needs.
RunTrace expected_run() {
  const auto entry = [](ScheduleEntry entry, double start, double duration) {
    return TimedEntry{.entry = entry, .start = start, .duration = duration};
  };
  const BoundaryMessage activations{BoundaryKind::activations, 0, 0};
  const auto product = [](int64_t m, int64_t n, int64_t k, DType output, int64_t lda, int64_t ldb,
                          int64_t ldc) {
    return GemmShape{.m = m,
                     .n = n,
                     .k = k,
                     .input = DType::bf16,
                     .output = output,
                     .lda = lda,
                     .ldb = ldb,
                     .ldc = ldc};
  };
  RankTrace first{
      .step = {.number = 3, .start = 0, .duration = 7759.826},
      .list = {entry(ChunkAction{ActionKind::forward, 0, 0}, 184.875, 434.195),
               entry(MessageEntry{MessageCall::post_send, activations}, 619.32, 3.866),
               entry(MessageEntry{MessageCall::wait_send, activations}, 1384.897, 0.902),
               entry(ChunkAction{ActionKind::backward, 0, 0}, 6019.982, 845.375)},
      .stage = 0,
      .chunks = {0, 2},
      .pipeline = 1,
      .coordinates = {{"tensor", 1}}};
  first.step.origin = {
      .processor = "AMD EPYC (family 25, model 17)",
      .features = {"avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"},
      .threads = 1,
      .rank = 1,
      .precision = Precision::bf16,
      .gemm_peak = 89110917649.84738,
      .tokens = 256};
  RankTrace second{
      .step = {.origin = first.step.origin, .number = 3, .start = 73.309, .duration = 7602.482},
      .list = {entry(MessageEntry{MessageCall::post_receive, activations}, 167.88, 4.627),
               entry(MessageEntry{MessageCall::wait_receive, activations}, 174.79, 502.657),
               entry(ChunkAction{ActionKind::forward, 1, 0}, 677.547, 602.214),
               entry(ChunkAction{ActionKind::backward, 1, 0}, 5117.231, 875.991)},
      .stage = 1,
      .chunks = {1, 3},
      .pipeline = 1,
      .coordinates = {{"tensor", 1}}};
  second.step.origin.rank = 3;
  first.step.recording_seconds = 0.00010752899834187701;
  second.step.recording_seconds = 8.565600273868768e-05;
  first.step.products = {product(128, 16, 64, DType::bf16, 64, 64, 16),
                         product(128, 32, 64, DType::bf16, 64, 64, 32)};
  for (GemmShape& shape : first.step.products) shape.transpose_b = true;
  second.step.products = {product(128, 64, 130, DType::bf16, 260, 64, 64),
                          product(128, 130, 64, DType::f32, 64, 64, 130),
                          product(130, 64, 128, DType::f32, 260, 64, 64)};
  second.step.products[1].transpose_b = true;
  second.step.products[2].transpose_a = true;
  second.step.products[2].accumulate = true;
  first.step.events = {{.name = "next_batches",
                        .block = "data",
                        .phase = "step",
                        .start = 0.531,
                        .duration = 177.844},
                       {.name = "all_gather",
                        .block = "attention",
                        .phase = "forward",
                        .layer = 0,
                        .lane = Lane::exchanges,
                        .start = 278.584,
                        .duration = 129.402,
                        .bytes = 24576,
                        .shape = "[128, 64]"},
                       {.name = "linear",
                        .block = "attention",
                        .phase = "forward",
                        .layer = 0,
                        .start = 408.707,
                        .duration = 9.204,
                        .flops = 1048576,
                        .bytes = 40960,
                        .shape = "[128, 32]",
                        .products = {{0, 2}, {1, 1}}}};
  second.step.events = {{.name = "linear_cross_entropy",
                         .block = "head",
                         .phase = "forward",
                         .start = 2827.33,
                         .duration = 241.048,
                         .flops = 6389760,
                         .backward_flops = 4259840,
                         .bytes = 117512,
                         .shape = "[1]",
                         .products = {{0, 1}, {1, 1}, {2, 1}}},
                        {.name = "adamw",
                         .block = "optimizer",
                         .phase = "update",
                         .start = 7640.088,
                         .duration = 30.425,
                         .bytes = 1364480}};
  return {.schedule = {.name = "interleaved", .micro_batches = 2},
          .ranks = {first, second},
          .has_groups = false};
}

TEST(RunTrace, OfAnEarlierProgramIsReadInFull) {
  RunTrace read = read_trace(kFolder / "trace-v3.json");
  const RunTrace expected = expected_run();
  const auto near = [](auto& found, const auto& of_expected) {
    EXPECT_NEAR(found.start, of_expected.start * 1e-6, 1e-15);
    EXPECT_NEAR(found.duration, of_expected.duration * 1e-6, 1e-15);
    found.start = of_expected.start;
    found.duration = of_expected.duration;
  };
  ASSERT_EQ(read.ranks.size(), expected.ranks.size());
  for (size_t i = 0; i < read.ranks.size(); ++i) {
    RankTrace& rank = read.ranks[i];
    const RankTrace& of_expected = expected.ranks[i];
    ASSERT_EQ(rank.step.events.size(), of_expected.step.events.size());
    ASSERT_EQ(rank.list.size(), of_expected.list.size());
    near(rank.step, of_expected.step);
    for (size_t j = 0; j < rank.step.events.size(); ++j) {
      near(rank.step.events[j], of_expected.step.events[j]);
    }
    for (size_t j = 0; j < rank.list.size(); ++j) near(rank.list[j], of_expected.list[j]);
    EXPECT_EQ(rank, of_expected) << rank.rank();
  }
  EXPECT_EQ(read, expected);
}

/// A trace of version 4, of a run like that of version 3 with one chunk a stage: ranks 0 and 2 of
/// four, without the groups that operations call.
TEST(RunTrace, OfVersion4IsReadWithItsLanesAndWithoutGroups) {
  const RunTrace read = read_trace(kFolder / "trace-v4.json");
  ASSERT_EQ(read.ranks.size(), 2U);
  EXPECT_FALSE(read.has_groups);
  std::vector<std::pair<std::string, Lane>> events;
  for (const RankTrace& rank : read.ranks) {
    EXPECT_EQ(rank.step.number, 3);
    EXPECT_TRUE(rank.step.groups.empty());
    for (const TraceEvent& event : rank.step.events) {
      EXPECT_TRUE(event.groups.empty());
      EXPECT_EQ(event.wire_bytes, 0);
      events.emplace_back(event.name, event.lane);
    }
  }
  EXPECT_EQ(events,
            (std::vector<std::pair<std::string, Lane>>{{"next_batches", Lane::compute},
                                                       {"all_gather", Lane::exchanges},
                                                       {"linear", Lane::compute},
                                                       {"reduce_scatter", Lane::exchanges},
                                                       {"linear_cross_entropy", Lane::compute},
                                                       {"sum_over_stages", Lane::reductions},
                                                       {"adamw", Lane::compute}}));
  EXPECT_EQ(read.ranks[0].step.events[2].products, (std::vector<ProductRuns>{{0, 2}, {1, 1}}));
  EXPECT_NEAR(read.ranks[1].step.events[0].start, 847.499e-6, 1e-12);
  ASSERT_EQ(read.ranks[0].list.size(), 4U);
  EXPECT_EQ(read.ranks[0].list[1].bytes, 0);
  EXPECT_EQ(read.schedule, (TracedSchedule{"1f1b", 4}));
}

}  // namespace
}  // namespace tessera
