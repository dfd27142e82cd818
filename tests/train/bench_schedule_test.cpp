#include "train/bench_schedule.h"

#include <array>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "comm/in_process/run_mesh.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "config/resolve.h"
#include "hardware/hardware_file.h"
#include "ops/host_target.h"
#include "pipeline/run_trace.h"
#include "plan/step_plan.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"
#include "train/timed_rank.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

RunConfig pipeline(std::vector<std::string> keys) {
  return resolve(parse_config(
      "[model]\nfamily = 'llama'\nlayers = 4\nhidden_size = 16\nheads = 2\nkv_heads = 2\n"
      "feed_forward_size = 16\nvocabulary_size = 32\n"
      "[data]\ncontext = 8\n[train]\nmicro_batch = 1\nglobal_batch = 4\nsteps = 20\n",
      "test", keys));
}

ScheduleMeasurement measure_on(int ranks, const std::vector<std::string>& keys,
                               const PassLengths& lengths = {.mean_seconds = 0.002, .path = {}},
                               int64_t repeats = 2) {
  const RunConfig config = pipeline(keys);
  return measure_schedule(config, mesh_of(config, ranks), lengths,
                          {.warmup = 0, .measured = repeats, .before = {}});
}

/// Expects that each stage began the actions of its list in their order, each after the one before
/// was done, and that nobody was faster than the schedule's clock.
void expect_run(const ScheduleMeasurement& measured) {
  for (const ScheduleFigures& run : measured.measured) {
    EXPECT_GE(run.makespan, measured.expected.makespan * (1 - 1e-9));
    ASSERT_EQ(run.ranks.size(), measured.expected.ranks.size());
    for (size_t stage = 0; stage < run.ranks.size(); ++stage) {
      const RankFigures& found = run.ranks[stage];
      const RankFigures& expected = measured.expected.ranks[stage];
      EXPECT_NEAR(found.busy, expected.busy, 1e-9);
      EXPECT_EQ(found.peak_in_flight, expected.peak_in_flight);
      ASSERT_EQ(found.actions.size(), expected.actions.size());
      for (size_t i = 0; i < found.actions.size(); ++i) {
        EXPECT_EQ(found.actions[i].action, expected.actions[i].action);
        EXPECT_GE(found.actions[i].start, expected.actions[i].start - 1e-9);
        if (i == 0) continue;
        EXPECT_GE(found.actions[i].start, found.actions[i - 1].end - 1e-9);
      }
    }
  }
}

class TimedSchedules : public ::testing::TestWithParam<const char*> {};

TEST_P(TimedSchedules, TakeNoLessThanTheirClockSays) {
  const std::string name = GetParam();
  const ScheduleMeasurement measured =
      measure_on(2, {"parallel.pipeline=2", "parallel.schedule='" + name + "'",
                     name == "interleaved" ? "parallel.virtual_stages=2" : "train.steps=20"});
  EXPECT_THAT(measured.measured, SizeIs(2));
  expect_run(measured);
  const double mean = 0.002;
  for (const RankFigures& stage : measured.expected.ranks) {
    EXPECT_NEAR(stage.busy, 4 * 3 * mean, 1e-9) << "of 4 micro-batches";
  }
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, TimedSchedules,
                         ::testing::Values("1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe-v",
                                           "flexible", "interleaved"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::erase(text, '-');
                           return text;
                         });

TEST(BenchSchedule, TakesTimesInProportionToFlops) {
  const ScheduleMeasurement measured = measure_on(
      2, {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.stage_layers=[0,2,1,1]"},
      {.rule = PassRule::flops, .mean_seconds = 0.002, .path = {}});
  expect_run(measured);
  double busy = 0;
  for (const RankFigures& stage : measured.expected.ranks) busy += stage.busy;
  EXPECT_NEAR(busy, 2 * 4 * 3 * 0.002, 1e-9) << "the mean is that of the whole model";
  EXPECT_GT(measured.expected.ranks[1].busy, measured.expected.ranks[0].busy)
      << "three layers and the head";
  EXPECT_EQ(measured.expected.ranks[0].actions[0].end, 0) << "the embedding multiplies nothing";
}

TEST(BenchSchedule, TakesTheTimesOfAFile) {
  const TemporaryFolder folder;
  const fs::path path = folder / "times.json";
  write_file(path,
             R"({"forward": [0.001, 0.003], "input_gradients": 0.002, "weight_gradients": 0})");
  const ScheduleMeasurement measured =
      measure_on(2, {"parallel.pipeline=2"}, {.rule = PassRule::file, .path = path}, 1);
  expect_run(measured);
  EXPECT_NEAR(measured.expected.ranks[0].busy, 4 * 0.003, 1e-9);
  EXPECT_NEAR(measured.expected.ranks[1].busy, 4 * 0.005, 1e-9);
  EXPECT_THAT(error_of([&] {
                measure_on(2, {"parallel.pipeline=2", "parallel.virtual_stages=2"},
                           {.rule = PassRule::file, .path = path});
              }),
              AllOf(HasSubstr("times.json"), HasSubstr("one for each of the 4")));
}

TEST(BenchSchedule, TakesTimesThatAreCalculatedFromAHardwareFile) {
  const TemporaryFolder folder;
  const fs::path path = folder / "hardware.json";
  const auto measured_with = [&](double rate, const std::vector<std::string>& more) {
    Hardware hardware{
        .processor = {.name = "a processor", .threads = 1},
        .gemms =
            {{.dtype = DType::bf16, .m = 1024, .n = 1024, .k = 1024, .best = rate, .median = rate}},
        .memory = {{MemoryKernel::update, 1 << 30, 1e15, 1e15}}};
    write_file(path, hardware_json(hardware));
    std::vector<std::string> keys{"parallel.pipeline=2"};
    keys.insert(keys.end(), more.begin(), more.end());
    return measure_on(2, keys, {.rule = PassRule::hardware}, 1);
  };
  const std::string key = "run.hardware='" + path.string() + "'";
  const ScheduleMeasurement slow = measured_with(1e9, {key});
  expect_run(slow);
  const ScheduleMeasurement fast = measured_with(4e9, {key});
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_NEAR(slow.expected.ranks[stage].busy, 4 * fast.expected.ranks[stage].busy,
                1e-9 + 1e-3 * slow.expected.ranks[stage].busy)
        << "products take all the time";
  }
  EXPECT_THAT(error_of([&] { measured_with(1e9, {}); }),
              AllOf(HasSubstr("--times is hardware"), HasSubstr("run.hardware names no file")));
}

/// With calls that take next to no time the step is that of the schedule's clock.
TEST(BenchSchedule, PredictsTheStepIfTheFileHasTimesOfCalls) {
  const TemporaryFolder folder;
  const fs::path path = folder / "hardware.json";
  Hardware hardware{
      .processor = {.name = "a processor", .threads = 1},
      .gemms =
          {{.dtype = DType::bf16, .m = 1024, .n = 1024, .k = 1024, .best = 4e9, .median = 4e9}},
      .memory = {{MemoryKernel::update, 1 << 30, 1e15, 1e15}}};
  const auto measure_with = [&] {
    write_file(path, hardware_json(hardware));
    return measure_on(2, {"parallel.pipeline=2", "run.hardware='" + path.string() + "'"},
                      {.rule = PassRule::hardware}, 1);
  };
  const ScheduleMeasurement without = measure_with();
  EXPECT_FALSE(without.predicted);
  EXPECT_FALSE(nlohmann::json::parse(schedule_json(without)).contains("predicted_step"));
  for (const Collective collective : kMeasuredCollectives) {
    for (const int64_t bytes : {1 << 10, 1 << 20}) {
      hardware.collectives.push_back({.collective = collective,
                                      .ranks = {RankKind::processes, 2, 1},
                                      .bytes = bytes,
                                      .best_seconds = 1e-9,
                                      .median_seconds = 1e-9});
    }
  }
  const ScheduleMeasurement with = measure_with();
  ASSERT_TRUE(with.predicted);
  EXPECT_NEAR(with.predicted->seconds, with.expected.makespan, 1e-6);
  const nlohmann::json json = nlohmann::json::parse(schedule_json(with))["predicted_step"];
  EXPECT_EQ(json["seconds"], with.predicted->seconds);
  ASSERT_EQ(json["by_stage"].size(), 2U);
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_NEAR(json["by_stage"][stage]["computing_seconds"].get<double>(),
                with.expected.ranks[stage].busy, 1e-6);
  }
  EXPECT_THAT(schedule_text(with), HasSubstr("predicted step"));
}

TEST(BenchSchedule, MeasuresARankOfEachStage) {
  const std::vector<std::string> keys{"parallel.pipeline=2", "parallel.tensor=2"};
  const ScheduleMeasurement measured = measure_on(4, keys);
  expect_run(measured);
  const RunConfig config = pipeline(keys);
  const auto bytes_of = [&](int rank) {
    return plan_step(config, host_target(1), {mesh_of(config, 4), rank}).memory.arena_bytes;
  };
  EXPECT_THAT(measured.arena_bytes, ElementsAre(bytes_of(0), bytes_of(2)));
}

TEST(BenchSchedule, TakesListsWithHalvesAndUnevenStagesFromAFile) {
  const TemporaryFolder folder;
  const fs::path path = folder / "schedule.txt";
  // The second stage has three of the four chunks. One backward pass of the last is in halves, so
  // all of them run so.
  write_file(path,
             "tessera pipeline schedule 1\nmicro-batches 4\nchunks 0 1 1 1\n"
             "rank 0: F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3\n"
             "rank 1: F1.0 F2.0 F3.0 B3.0 B2.0 B1.0 F1.1 F2.1 F3.1 I3.1 W3.1 B2.1 B1.1\n"
             "rank 1: F1.2 F2.2 F3.2 B3.2 B2.2 B1.2 F1.3 F2.3 F3.3 B3.3 B2.3 B1.3\n");
  const ScheduleMeasurement measured =
      measure_on(2, {"parallel.pipeline=2", "parallel.virtual_stages=2",
                     "parallel.schedule='" + path.string() + "'"});
  expect_run(measured);
  EXPECT_EQ(measured.expected.ranks[0].actions.size(), 8U);
  EXPECT_EQ(measured.expected.ranks[1].actions.size(), 24U + 4) << "a half more for each of four";
}

TEST(BenchSchedule, OneRankRunsItsChunksOneAfterTheOther) {
  expect_run(measure_on(1, {"parallel.virtual_stages=2"}));
}

/// Returns the bytes that a rank receives in a program, as its operations say.
double wire_bytes(const Program& program) {
  double bytes = 0;
  for (const Node& node : program.nodes()) {
    for (const WireBytes& wire : node_cost(program, node).wire) bytes += wire.bytes;
  }
  return bytes;
}

TEST(TimedRank, EndsAStepWithTheCollectivesOfItsUpdate) {
  for (const std::string optimizer : {"none", "all"}) {
    SCOPED_TRACE(optimizer);
    const RunConfig config = pipeline({"shard.optimizer='" + optimizer + "'"});
    const Mesh mesh = mesh_of(config, 2);
    std::array<double, 2> received{};
    double expected = 0;  // of one rank on average: pieces are uneven
    FoundOrders found;
    World world(2);
    run_mesh(world, mesh, [&](RankGroups& groups) {
      TimedRank rank(config, 2, groups, RankControl(groups), std::array{0, 1}, found);
      rank.set_times({.chunks = {{.forward = 0, .input_gradients = 0, .weight_gradients = 0}}},
                     /*computes_update=*/false);
      const Communicator& group = groups.over(mesh.data(), word(Lane::reductions));
      const auto received_bytes = [&] {
        int64_t bytes = 0;
        for (size_t kind = 0; kind < kWordsOf<Collective>.size(); ++kind) {
          bytes += group.traffic(static_cast<Collective>(kind)).received_bytes;
        }
        return bytes;
      };
      const int64_t before = received_bytes();  // the ranks have compared their lists of calls
      const TimedStep step = rank.run(0);
      rank.synchronize();
      received[static_cast<size_t>(groups.rank())] = static_cast<double>(received_bytes() - before);
      EXPECT_LE(step.start, step.actions.front().start);
      EXPECT_LE(step.actions.back().end, step.list_end);
      EXPECT_LE(step.list_end, step.end);
      if (groups.rank() != 0) return;
      const StepPlan plan = plan_step(config, host_target(1), {mesh, 0});
      expected = wire_bytes(plan.programs.update.program);
    });
    EXPECT_GT(expected, 0);
    EXPECT_EQ(received[0] + received[1], 2 * expected);
  }
}

TEST(TimedRank, ComputesTheUpdateIfAsked) {
  const RunConfig config = pipeline({"shard.optimizer='all'"});
  const Mesh mesh = mesh_of(config, 2);
  FoundOrders found;
  World world(2);
  run_mesh(world, mesh, [&](RankGroups& groups) {
    TimedRank rank(config, 2, groups, RankControl(groups), std::array{0, 1}, found);
    for (const bool computes : {false, true}) {
      rank.set_times({.chunks = {{.forward = 0, .input_gradients = 0, .weight_gradients = 0}}},
                     computes);
      rank.run(0);
      EXPECT_EQ(rank.update_scale(), computes ? 1 : 0);
    }
  });
}

TEST(BenchSchedule, TimesStepsFromTheFirstStartToTheLastUpdate) {
  const ScheduleMeasurement measured = measure_on(2, {});
  ASSERT_THAT(measured.steps, SizeIs(2));
  for (size_t i = 0; i < measured.steps.size(); ++i) {
    EXPECT_GE(measured.steps[i].seconds,
              measured.measured[i].makespan + measured.steps[i].update_seconds);
    EXPECT_GT(measured.steps[i].update_seconds, 0);
  }
}

TEST(BenchSchedule, TracesTheLastStepWithTheTimesOfItsNodes) {
  const RunConfig config = pipeline({});
  const Mesh mesh = mesh_of(config, 2);
  const Repeats repeats{.warmup = 1, .measured = 2, .before = {}};
  const PassLengths lengths{.rule = PassRule::flops, .mean_seconds = 0.002, .path = {}};
  const ScheduleMeasurement measured = measure_schedule(config, mesh, lengths, repeats, true);
  const TemporaryFolder folder;
  write_file(folder / "trace.json", measured.traces.text);
  const RunTrace trace = read_trace(folder / "trace.json");
  EXPECT_EQ(trace.schedule.micro_batches, 2);
  ASSERT_THAT(trace.ranks, SizeIs(2));
  for (const RankTrace& rank : trace.ranks) {
    EXPECT_EQ(rank.step.number, 3);
    EXPECT_EQ(rank.coordinates, (std::map<std::string, int>{{"data", rank.rank()}}));
    double computing = 0;
    int calls = 0;
    for (const TraceEvent& event : rank.step.events) {
      if (event.lane == Lane::compute) computing += event.duration;
      if (event.lane == Lane::reductions && !event.groups.empty()) ++calls;
    }
    EXPECT_NEAR(computing, measured.expected.ranks[0].busy, 1e-6) << "times are in nanoseconds";
    EXPECT_GT(calls, 0);
    EXPECT_THAT(rank.list, SizeIs(4)) << "passes";
  }
  EXPECT_EQ(measure_schedule(config, mesh, lengths, repeats).traces.text, "");
}

TEST(BenchSchedule, RefusesWhatItCannotTime) {
  EXPECT_THAT(error_of([&] { measure_on(1, {"run.device='emulated'"}); }),
              AllOf(HasSubstr("run.device is \"emulated\""), HasSubstr("set it to \"cpu\"")));
  const TemporaryFolder folder;
  const fs::path path = folder / "times.json";
  write_file(path, R"({"forward": 0, "input_gradients": [0, 0], "weight_gradients": 0})");
  EXPECT_THAT(error_of([&] {
                measure_on(2, {"parallel.pipeline=2"}, {.rule = PassRule::file, .path = path});
              }),
              AllOf(HasSubstr("times.json"), HasSubstr("all passes take 0 seconds")));
}

RunConfig mixture(const std::vector<std::string>& keys) {
  return resolve(parse_config(
      "[model]\nfamily = 'olmoe'\nlayers = 2\nhidden_size = 16\nheads = 2\nkv_heads = 2\n"
      "experts = 4\nexperts_per_token = 1\nexpert_size = 8\nvocabulary_size = 32\n"
      "[data]\ncontext = 8\n[train]\nmicro_batch = 1\nglobal_batch = 4\nsteps = 20\n",
      "test", keys));
}

TEST(BenchSchedule, RefusesExchangesOfTokensThatARouterChooses) {
  const auto measure_with = [](const std::vector<std::string>& keys) {
    const RunConfig config = mixture(keys);
    return measure_schedule(config, mesh_of(config, 2), {.mean_seconds = 1e-4, .path = {}},
                            {.warmup = 0, .measured = 1});
  };
  EXPECT_THAT(error_of([&] { measure_with({"parallel.expert=2"}); }),
              AllOf(HasSubstr("parallel.expert is 2"),
                    HasSubstr("set model.forced_uniform_routing to true, parallel.expert to 1")));
  EXPECT_THAT(measure_with({"parallel.expert=2", "parallel.expert_exchange='all_gather'"}).measured,
              SizeIs(1));
  EXPECT_THAT(measure_with({"parallel.expert=2", "model.experts_per_token=2"}).measured, SizeIs(1))
      << "gathers";
}

/// Each rank has 8 tokens of one expert each, and half of the 4 experts. So it sends 4 rows of 16
/// numbers to the other rank and gets as many back, in each layer, and the same for gradients.
TEST(TimedRank, ExchangesRowsAsIfTheRouterWereForcedToBeEven) {
  const RunConfig config =
      mixture({"parallel.expert=2", "model.forced_uniform_routing=true", "train.precision='fp32'"});
  const Mesh mesh = mesh_of(config, 2);
  std::array<int64_t, 2> received{};
  FoundOrders found;
  World world(2);
  run_mesh(world, mesh, [&](RankGroups& groups) {
    TimedRank rank(config, 2, groups, RankControl(groups), std::array{0, 1}, found);
    rank.set_times({.chunks = {{.forward = 1e-3, .input_gradients = 0, .weight_gradients = 0}}},
                   /*computes_update=*/false);
    const Communicator& group = groups.over(std::array{mesh.expert()}, word(Lane::exchanges));
    const auto rows = [&] { return group.traffic(Collective::all_to_all_rows).received_bytes; };
    const int64_t before = rows();
    rank.run(0);
    rank.synchronize();
    received[static_cast<size_t>(groups.rank())] = rows() - before;
  });
  const int64_t micro_batches = 2, layers = 2, ways = 4;
  const int64_t expected = micro_batches * layers * ways * (4 * 16 * 4);
  EXPECT_EQ(received, (std::array{expected, expected}));
}

TEST(BenchSchedule, ReportsWhatItMeasured) {
  ScheduleMeasurement measured = measure_on(2, {"parallel.pipeline=2"});
  measured.measured[0].makespan = 0.5;
  measured.measured[1].makespan = 0.5;
  measured.measured[0].bubble = 0.25;
  measured.measured[1].bubble = 0.25;
  measured.steps = {{.seconds = 0.75, .update_seconds = 0.125},
                    {.seconds = 0.75, .update_seconds = 0.125}};
  const nlohmann::json json = nlohmann::json::parse(schedule_json(measured));
  EXPECT_EQ(json["schedule"], "1f1b");
  EXPECT_EQ(json["stages"], 2);
  EXPECT_EQ(json["micro_batches"], 4);
  EXPECT_EQ(json["makespan_seconds"], nlohmann::json({0.5, 0.5}));
  EXPECT_EQ(json["bubble"], nlohmann::json({0.25, 0.25}));
  EXPECT_DOUBLE_EQ(json["expected_bubble"], 1.0 / 4);
  EXPECT_EQ(json["micro_batches_per_second"], 8);
  EXPECT_EQ(json["step_seconds"], nlohmann::json({0.75, 0.75}));
  EXPECT_EQ(json["update_computes"], false);
  EXPECT_EQ(json["update_seconds"], nlohmann::json({0.125, 0.125}));
  EXPECT_EQ(json["by_stage"][0]["chunks_in_flight"], 2);
  EXPECT_EQ(json["by_stage"][1]["peak_bytes"], measured.arena_bytes[1]);
  EXPECT_THAT(
      schedule_text(measured),
      AllOf(HasSubstr("1f1b: 2 stages, 2 chunks, 4 micro-batches on 2 ranks"),
            HasSubstr("bubble          25.0 % (25.0-25.0); 25.0 % by the schedule's clock"),
            HasSubstr("micro-batches/s 8\n"), HasSubstr("of it the collectives of the update\n")));

  measured.lengths.computes_update = true;
  EXPECT_EQ(nlohmann::json::parse(schedule_json(measured))["update_computes"], true);
  EXPECT_THAT(schedule_text(measured), HasSubstr("of it the update\n"));
}

}  // namespace
}  // namespace tessera
