#include "plan/node_seconds.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/wire_bytes.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "plan/programs.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kBandwidth = 1e9;

GemmRate rate(DType dtype, GemmLayout layout, int64_t m, int64_t n, int64_t k, double flops) {
  return {.dtype = dtype, .layout = layout, .m = m, .n = n, .k = k, .best = flops, .median = flops};
}

/// The times of a collective at three sizes, all on the line latency + bytes · per_byte.
std::vector<CollectiveRate> on_a_line(Collective collective, int ranks, int machines,
                                      double latency, double per_byte) {
  std::vector<CollectiveRate> rates;
  for (const int64_t bytes : {1 << 10, 1 << 16, 1 << 24}) {
    const double seconds = latency + static_cast<double>(bytes) * per_byte;
    rates.push_back({.collective = collective,
                     .ranks = {RankKind::processes, ranks, machines},
                     .bytes = bytes,
                     .best_seconds = seconds,
                     .median_seconds = seconds});
  }
  return rates;
}

/// A machine that multiplies fast in squares, and ten times slower with few rows.
Hardware measured_machine() {
  Hardware hardware;
  hardware.gemms = {rate(DType::f32, GemmLayout::forward, 1024, 1024, 1024, 1e9),
                    rate(DType::f32, GemmLayout::forward, 8, 1024, 1024, 1e8),
                    rate(DType::f32, GemmLayout::weight_gradient, 1024, 1024, 1024, 5e8)};
  hardware.memory = {{MemoryKernel::update, 1 << 30, kBandwidth, kBandwidth}};
  for (const Collective collective : kMeasuredCollectives) {
    for (const auto& [machines, per_byte] : {std::pair{1, 1e-9}, std::pair{4, 1e-8}}) {
      std::ranges::copy(on_a_line(collective, 4, machines, 1e-5 * machines, per_byte),
                        std::back_inserter(hardware.collectives));
    }
  }
  return hardware;
}

NodeSeconds seconds_on(const Hardware& hardware) { return {hardware, "FILE", Target{}}; }

TEST(NodeSeconds, OfAProductAreThoseOfTheNearestShapeAndLayout) {
  const NodeSeconds seconds = seconds_on(measured_machine());
  const auto of = [&](GemmLayout layout, double m) {
    return seconds.product(DType::f32, layout, m, 1000, 1000);
  };
  EXPECT_DOUBLE_EQ(of(GemmLayout::forward, 1000), 2 * 1e9 / 1e9);
  EXPECT_DOUBLE_EQ(of(GemmLayout::forward, 16), 2 * 16e6 / 1e8);
  EXPECT_DOUBLE_EQ(of(GemmLayout::weight_gradient, 16), 2 * 16e6 / 5e8) << "one was measured";
  EXPECT_DOUBLE_EQ(of(GemmLayout::input_gradient, 16), 2 * 16e6 / 1e8) << "none was measured";
  EXPECT_THAT(error_of([&] { seconds.product(DType::bf16, GemmLayout::forward, 8, 8, 8); }),
              AllOf(HasSubstr("FILE has no matrix product of bf16"), HasSubstr("bench gemm")));
}

TEST(NodeSeconds, OfCollectivesAreOnTheLineThatWasMeasured) {
  const NodeSeconds seconds = seconds_on(measured_machine());
  for (const Collective collective : kMeasuredCollectives) {
    EXPECT_NEAR(seconds.collective(collective, 5000, {RankKind::processes, 4, 1}), 1e-5 + 5e-6,
                1e-12);
    EXPECT_NEAR(seconds.collective(collective, 5000, {RankKind::processes, 4, 2}), 4e-5 + 5e-5,
                1e-12);
  }
  // Of 8 ranks each sends 7/8 of the bytes, of 4 ranks 3/4.
  EXPECT_NEAR(seconds.collective(Collective::all_gather, 5000, {RankKind::processes, 8, 1}),
              1e-5 + 5e-6 * (7.0 / 8) / (3.0 / 4), 1e-12);
  EXPECT_NEAR(seconds.collective(Collective::broadcast, 5000, {RankKind::processes, 8, 1}),
              1e-5 + 5e-6, 1e-12);
}

TEST(NodeSeconds, OfCollectivesAreOfThreadsOrOfProcesses) {
  Hardware hardware = measured_machine();
  for (CollectiveRate& rate : hardware.collectives) rate.ranks.kind = RankKind::threads;
  std::ranges::copy(on_a_line(Collective::all_gather, 4, 1, 1e-3, 1e-7),
                    std::back_inserter(hardware.collectives));
  const NodeSeconds seconds = seconds_on(hardware);
  const auto of = [&](Collective collective, RankKind kind) {
    return seconds.collective(collective, 5000, {kind, 4, 1});
  };
  EXPECT_NEAR(of(Collective::all_gather, RankKind::threads), 1e-5 + 5e-6, 1e-12);
  EXPECT_NEAR(of(Collective::all_gather, RankKind::processes), 1e-3 + 5e-4, 1e-12);
  EXPECT_NEAR(of(Collective::all_reduce, RankKind::processes), 1e-5 + 5e-6, 1e-12)
      << "of processes there are no times";
  hardware.collectives = on_a_line(Collective::all_gather, 4, 1, 1e-3, 1e-7);
  const NodeSeconds of_processes = seconds_on(hardware);
  EXPECT_THAT(error_of([&] {
                of_processes.collective(Collective::all_gather, 8, {RankKind::threads, 4, 1});
              }),
              HasSubstr("no times of all_gather among threads of one machine"));
}

TEST(NodeSeconds, OfCollectivesAreOfTheBytesWhateverTheTypeOfTheElements) {
  Hardware hardware = measured_machine();
  hardware.collectives = on_a_line(Collective::all_gather, 4, 1, 1e-5, 1e-9);
  std::vector<CollectiveRate> in_bf16 = on_a_line(Collective::all_gather, 4, 1, 3e-5, 3e-9);
  for (CollectiveRate& rate : in_bf16) rate.dtype = DType::bf16;
  std::ranges::copy(in_bf16, std::back_inserter(hardware.collectives));
  // Of 1 and 3, weighted by their inverse squares, the mean is (1 + 1 / 3) / (1 + 1 / 9).
  EXPECT_NEAR(
      seconds_on(hardware).collective(Collective::all_gather, 5000, {RankKind::processes, 4, 1}),
      1.2 * (1e-5 + 5e-6), 1e-12);
}

TEST(NodeSeconds, OfCollectivesHaveNeitherNegativeLatencyNorNegativeTimesOfBytes) {
  constexpr CollectiveRanks kPair{.kind = RankKind::processes};
  Hardware hardware = measured_machine();
  hardware.collectives = on_a_line(Collective::all_gather, 2, 1, -1e-7, 1e-9);
  EXPECT_GT(seconds_on(hardware).collective(Collective::all_gather, 0, kPair), -1e-12);
  hardware.collectives = on_a_line(Collective::all_gather, 2, 1, 1e-3, -1e-12);
  EXPECT_GT(seconds_on(hardware).collective(Collective::all_gather, 1e12, kPair), 0);
}

TEST(NodeSeconds, NameTheCollectiveThatWasNotMeasured) {
  Hardware hardware = measured_machine();
  hardware.collectives = on_a_line(Collective::all_gather, 4, 1, 1e-5, 1e-9);
  const NodeSeconds seconds = seconds_on(hardware);
  EXPECT_THAT(error_of([&] {
                seconds.collective(Collective::all_reduce, 8, {RankKind::processes, 4, 1});
              }),
              AllOf(HasSubstr("FILE has no times of all_reduce among processes of one machine"),
                    HasSubstr("--hardware FILE")));
  EXPECT_THAT(error_of([&] {
                seconds.collective(Collective::all_gather, 8, {RankKind::processes, 4, 2});
              }),
              HasSubstr("all_gather among processes of several machines"));
}

/// A dense model on a mesh: the program of the first rank's chunk.
StepPrograms programs_on(int ranks, std::vector<std::string> keys) {
  const RunConfig config = parse_config(
      "[model]\nfamily = 'llama'\nlayers = 2\nhidden_size = 32\nheads = 4\nkv_heads = 2\n"
      "feed_forward_size = 48\nvocabulary_size = 64\n"
      "[data]\ncontext = 16\n[train]\nmicro_batch = 1\nglobal_batch = 8\nprecision = 'fp32'\n",
      "test", keys);
  return step_programs(config, {mesh_of(config, ranks), 0});
}

const Node& first(const Program& program, std::string_view operation) {
  for (const Node& node : program.nodes()) {
    if (node.operation->name() == operation) return node;
  }
  throw Error("no {}", operation);
}

TEST(NodeSeconds, OfANodeAreThoseOfItsProductsOrOfItsBytesIfTheseTakeLonger) {
  const StepPrograms programs = programs_on(1, {});
  const Program& program = programs.chunks().front().program;
  const Node& norm = first(program, "rms_norm");
  const Node& product = first(program, "linear");
  EXPECT_DOUBLE_EQ(seconds_on(measured_machine())(program, norm),
                   node_cost(program, norm).bytes / kBandwidth);
  Hardware slow = measured_machine();
  for (GemmRate& gemm : slow.gemms) gemm.best = gemm.median = 1e6;
  EXPECT_DOUBLE_EQ(seconds_on(slow)(program, product), node_cost(program, product).flops / 1e6);
  Hardware fast = measured_machine();
  for (GemmRate& gemm : fast.gemms) gemm.best = gemm.median = 1e15;
  EXPECT_DOUBLE_EQ(seconds_on(fast)(program, product),
                   node_cost(program, product).bytes / kBandwidth);
}

/// A file may lack what a node does not ask for. Errors name the file.
TEST(NodeSeconds, LookUpOnlyTheRatesThatANodeNeeds) {
  const StepPrograms programs = programs_on(1, {});
  const Program& program = programs.chunks().front().program;
  Hardware hardware = measured_machine();
  hardware.gemms = {rate(DType::f32, GemmLayout::forward, 8, 1024, 1024, 1e6)};
  const Node& product = first(program, "linear");
  EXPECT_DOUBLE_EQ(seconds_on(hardware)(program, product), node_cost(program, product).flops / 1e6)
      << "no square was measured, and none is asked for";
  EXPECT_THAT(error_of([&] { seconds_on(hardware)(program, first(program, "attention")); }),
              AllOf(HasSubstr("FILE: "), HasSubstr("no square matrix product of f32")));
  hardware.memory = {};
  EXPECT_THAT(error_of([&] { seconds_on(hardware)(program, first(program, "rms_norm")); }),
              AllOf(HasSubstr("FILE: "), HasSubstr("no bandwidth of the loop 'update'")));
}

TEST(NodeSeconds, OfNodesOfOtherLanesAreThoseOfTheirCallsAlone) {
  const StepPrograms programs = programs_on(4, {"parallel.tensor=4"});
  const Program& program = programs.chunks().front().program;
  const Node& gather = first(program, "all_gather");
  const NodeSeconds seconds = seconds_on(measured_machine());
  EXPECT_GT(node_cost(program, gather).bytes, 0);
  EXPECT_EQ(seconds.work(program, gather), 0);
  EXPECT_EQ(seconds(program, gather), seconds.calls(program, gather));
}

TEST(NodeSeconds, OfACollectiveAreThoseOfItsLevelOfTheNetwork) {
  // 16 tokens of 32 numbers of f32 are gathered.
  constexpr double kBytes = 16 * 32 * 4;
  const auto gather_seconds = [](std::vector<std::string> keys) {
    const StepPrograms programs = programs_on(4, std::move(keys));
    const Program& program = programs.chunks().front().program;
    return seconds_on(measured_machine())(program, first(program, "all_gather"));
  };
  EXPECT_NEAR(gather_seconds({"parallel.tensor=4", "parallel.levels=[4]"}), 1e-5 + kBytes * 1e-9,
              1e-12);
  EXPECT_NEAR(gather_seconds({"parallel.tensor=4", "parallel.levels=[2]"}), 4e-5 + kBytes * 1e-8,
              1e-12)
      << "two machines";
}

/// Every node of these programs has a time that is no less than nothing.
void expect_times(int ranks, std::vector<std::string> keys) {
  const StepPrograms programs = programs_on(ranks, std::move(keys));
  const NodeSeconds seconds = seconds_on(measured_machine());
  for (const Program* const program : programs.list()) {
    for (const Node& node : program->nodes()) {
      const double time = seconds(*program, node);
      EXPECT_TRUE(std::isfinite(time) && time >= 0) << node.operation->name();
      if (!node.operation->group_axes().empty()) {
        EXPECT_GT(time, 0) << node.operation->name();
      }
    }
  }
}

TEST(NodeSeconds, AreKnownForTheNodesOfEachLayout) {
  expect_times(8, {"parallel.tensor=2", "parallel.context=2", "parallel.levels=[4]"});
  expect_times(
      8, {"shard.weights='all'", "shard.gradients='all'", "shard.optimizer='all'",
          "shard.gradients_wire='int4'", "shard.weights_wire='int8'", "parallel.levels=[2,2]"});
  expect_times(8, {"parallel.pipeline=2", "parallel.tensor=2", "optimizer.name='muon'",
                   "shard.optimizer='all'"});
  const std::vector<std::string> experts{"model.family='mixtral'",    "model.experts=4",
                                         "model.experts_per_token=2", "model.expert_size=16",
                                         "model.feed_forward_size=0", "parallel.expert=4"};
  for (const char* const exchange : {"'all_to_all'", "'all_gather'"}) {
    std::vector<std::string> keys = experts;
    keys.push_back(std::string("parallel.expert_exchange=") + exchange);
    expect_times(8, std::move(keys));
  }
}

}  // namespace
}  // namespace tessera
