#include "plan/explain_overlap.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/mesh_of.h"
#include "hardware/hardware_file.h"
#include "ops/host_target.h"
#include "plan/overlap_step.h"
#include "plan/small_run.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

OverlapAccount account_of(const RunConfig& config, int ranks, int rank = 0) {
  const Mesh mesh = mesh_of(config, ranks);
  return overlap_account(config, plan_step(config, host_target(1), {mesh, rank}));
}

/// What the compute lane does not compute, it waits for.
TEST(OverlapAccount, HasComputingExposedAndWaitingTimeThatMakeTheStep) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{},
        {"parallel.tensor=2"},
        {"shard.weights='all'", "shard.gradients='all'", "shard.optimizer='all'"},
        {"parallel.pipeline=2"},
        {"parallel.pipeline=2", "parallel.tensor=2"}}) {
    const RunConfig config = testing::small_run(4, keys);
    for (const int rank : {0, 3}) {
      SCOPED_TRACE(::testing::PrintToString(keys) + ", rank " + std::to_string(rank));
      const OverlapAccount account = account_of(config, 4, rank);
      double sum = account.computing;
      for (const OverlapRow& row : account.rows) {
        EXPECT_GT(row.calls, 0) << row.operation;
        EXPECT_LE(row.exposed, row.seconds * (1 + 1e-9)) << row.operation;
        sum += row.exposed + row.waiting;
      }
      EXPECT_FALSE(account.rows.empty());
      EXPECT_NEAR(sum, account.seconds, 1e-9 * account.seconds);
      EXPECT_LE(account.seconds, account.seconds_written * (1 + 1e-9));
    }
  }
}

TEST(OverlapAccount, HasTheMessagesOfAPipeline) {
  const RunConfig config = testing::small_run(4, {"parallel.pipeline=2"});
  const OverlapAccount account = account_of(config, 2);
  const auto row = std::ranges::find_if(account.rows, &OverlapRow::is_message);
  ASSERT_NE(row, account.rows.end());
  EXPECT_EQ(row->axes, "pipeline");
  EXPECT_EQ(row->calls, 8) << "one of each micro-batch, each way in a row of its own";
  // A message is 16 positions of 32 numbers: 10 microseconds, and its bytes at 50 GB/s.
  EXPECT_NEAR(row->seconds, 8 * (10e-6 + 16 * 32 * 2 / 50e9), 1e-9);
  const std::string table = overlap_table(account);
  EXPECT_THAT(table, AllOf(HasSubstr("messages of activations"), HasSubstr("messages of gradients"),
                           HasSubstr("waiting for other stages"), HasSubstr("nominal rates")));
  const nlohmann::json json = overlap_json(account);
  EXPECT_EQ(json["step_seconds"], account.seconds);
  EXPECT_EQ(json["computing_seconds"], account.computing);
}

TEST(OverlapRow, SaysWhySecondsStayExposed) {
  OverlapRow row{.axes = "tensor",
                 .operation = "all_gather of attention",
                 .calls = 1,
                 .seconds = 1,
                 .exposed = 0.0005,
                 .exposed_unbounded = 0.0005,
                 .beside = {}};
  EXPECT_EQ(row.reason(), "") << "less than a thousandth";
  row.exposed = row.exposed_unbounded = 0.5;
  EXPECT_EQ(row.reason(), "its result is needed at once");
  row.beside["linear of attention"] = 0.5;
  EXPECT_EQ(row.reason(), "what needs no result of it takes less time");
  row.exposed_unbounded = 0.4;
  EXPECT_EQ(row.reason(), "parallel.overlap_memory");
  row.is_message = true;
  EXPECT_EQ(row.reason(), "the schedule waits for it");
}

/// With no memory nothing is gathered ahead. Without a bound it is, beside computing.
TEST(OverlapAccount, SaysWhatMoreMemoryWouldHide) {
  const RunConfig config =
      testing::small_run(4, {"shard.weights='all'", "shard.gradients='all'",
                             "shard.optimizer='all'", "parallel.overlap_memory='0 B'"});
  const OverlapAccount account = account_of(config, 4);
  double exposed = 0, exposed_unbounded = 0;
  for (const OverlapRow& row : account.rows) {
    exposed += row.exposed;
    exposed_unbounded += row.exposed_unbounded;
    double beside = 0;
    for (const auto& [name, seconds] : row.beside) beside += seconds;
    EXPECT_LE(beside, row.seconds * (1 + 1e-9)) << row.operation;
  }
  EXPECT_LT(exposed_unbounded, exposed);
}

TEST(OverlapAccount, SaysThatMicroBatchesTakeTurns) {
  const auto expect_sentence = [](std::vector<std::string> keys, const std::string& sentence) {
    const OverlapAccount account = account_of(testing::small_run(4, keys), 4);
    EXPECT_THAT(overlap_table(account), HasSubstr(sentence + "\n"));
    EXPECT_EQ(overlap_json(account)["turns"], sentence);
  };
  const std::string tensor = "parallel.tensor=2";
  expect_sentence({tensor},
                  "two micro-batches take turns: their forward passes, then their backward passes");
  const std::string none = "micro-batches do not take turns: ";
  expect_sentence({tensor, "train.global_batch=2"}, none + "a step has one micro-batch");
  expect_sentence({"parallel.pipeline=2"}, none + "the model is in several chunks");
  expect_sentence({tensor, "parallel.overlap=false"}, none + "parallel.overlap is false");
  expect_sentence({tensor, "parallel.overlap_memory='0 B'"},
                  none + "two micro-batches take more than parallel.overlap_memory allows");
  expect_sentence({"parallel.context=2"}, none + "a step would take less than 1 % less");
  expect_sentence({}, none + "no call has to be waited for, or what is added must stay in order");
}

TEST(OverlapAccount, SaysHowManyCallsAreTakenToBeginAlone) {
  OverlapAccount account{.times = "nominal rates", .seconds = 1, .calls_alone = 3, .rows = {}};
  EXPECT_THAT(overlap_table(account), HasSubstr("3 calls are predicted without their wait"));
  EXPECT_EQ(overlap_json(account)["calls_without_other_stages"], 3);
  account.calls_alone = 0;
  EXPECT_THAT(overlap_table(account), Not(HasSubstr("without their wait")));
}

TEST(OverlapAccount, IsNotSlowerThanTheWrittenOrderWithLittleMemory) {
  const std::string states = "shard.optimizer='all'", gradients = "shard.gradients='all'",
                    weights = "shard.weights='all'";
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallel.tensor=2"}, {states, gradients}, {states, gradients, weights}}) {
    for (const char* const memory : {"0 B", "1 KiB", "4 KiB", "16 KiB"}) {
      std::vector<std::string> keys = layout;
      keys.push_back(fmt::format("parallel.overlap_memory='{}'", memory));
      const OverlapAccount account = account_of(testing::small_run(4, keys), 2);
      EXPECT_LE(account.seconds, account.seconds_written * (1 + 1e-9))
          << memory << ::testing::PrintToString(layout);
    }
  }
}

TEST(OverlapAccount, IsEmptyForOneRank) {
  EXPECT_THAT(account_of(testing::small_run(4, {}), 1).rows, IsEmpty());
}

/// Four ranks of one machine, or of two if parallel.levels says so.
std::string warning_with(const std::vector<std::string>& keys) {
  const RunConfig config = testing::small_run(4, keys);
  return overlap_warning(config, mesh_of(config, 4));
}

TEST(OverlapWarning, SaysThatAFileHasNoTimesOfCollectives) {
  const TemporaryFolder folder;
  const fs::path path = folder / "hardware.json";
  Hardware hardware{.processor = {.name = "a processor", .threads = 1},
                    .gemms = {},
                    .memory = {{MemoryKernel::update, 1 << 30, 1e9, 1e9}}};
  write_file(path, hardware_json(hardware));
  const std::string key = "run.hardware='" + path.string() + "'";
  EXPECT_THAT(warning_with({key}), AllOf(HasSubstr(path.string()), HasSubstr("nominal rates"),
                                         HasSubstr("bench collectives --hardware")));
  EXPECT_EQ(warning_with({key, "parallel.overlap=false"}), "");
  EXPECT_EQ(warning_with({}), "");
  const std::string of_accelerator =
      fmt::format("run.hardware='{}/configs/hardware/nvidia-h200.json'", TESSERA_SOURCE);
  EXPECT_THAT(warning_with({of_accelerator}),
              AllOf(HasSubstr("nominal rates"), Not(HasSubstr("bench collectives"))));
  hardware.collectives = {{.collective = Collective::all_reduce,
                           .ranks = {RankKind::processes, 2, 1},
                           .bytes = 4,
                           .best_seconds = 1,
                           .median_seconds = 1}};
  write_file(path, hardware_json(hardware));
  EXPECT_EQ(warning_with({key}), "");
  const std::string two_machines = "parallel.levels=[2]";
  EXPECT_THAT(warning_with({key, two_machines}), HasSubstr("nominal rates"));
  const RunConfig config = testing::small_run(4, {key, two_machines});
  EXPECT_EQ(step_overlap(config, mesh_of(config, 4)).times, "nominal rates");
}

}  // namespace
}  // namespace tessera
