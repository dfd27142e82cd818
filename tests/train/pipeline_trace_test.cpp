// Traced steps of several ranks: one file, on one axis of times.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "config/resolve.h"
#include "pipeline/run_trace.h"
#include "plan/account/critical_path.h"
#include "plan/account/network_account.h"
#include "support/scattered_schedule.h"
#include "support/trace_of_schedule.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using Keys = std::vector<std::string>;
using Coordinates = std::map<std::string, int>;

class PipelineTrace : public Ranks {
 protected:
  static RunConfig traced(const std::string& run, const Keys& more) {
    Keys keys{"model.layers=4",
              "model.hidden_size=16",
              "model.feed_forward_size=24",
              "train.steps=2",
              "checkpoint.every=0",
              "optimizer.warmup_steps=1",
              "parallel.schedule=\"1f1b\"",
              "run.trace_step=2"};
    keys.insert(keys.end(), more.begin(), more.end());
    return config(run, keys);
  }
  static RunTrace trace_of(const std::string& run) {
    return read_trace(folder(run) / "trace.json");
  }
  static PipelineSchedule schedule_of(const RunConfig& config, int ranks) {
    const RunConfig resolved = resolve(config);
    return pipeline_schedule(resolved, mesh_of(resolved, ranks));
  }
};

TEST_F(PipelineTrace, OfFourStagesHasTheListOfEachInOrder) {
  const std::vector<std::pair<std::string, Keys>> schedules{
      {"1f1b", {}},
      {"interleaved",
       {"parallel.schedule=\"interleaved\"", "parallel.virtual_stages=2", "model.layers=8"}},
      {"flexible",
       {"parallel.schedule=\"flexible\"", "parallel.virtual_stages=2", "model.layers=8",
        "train.global_batch=10"}},
      {"zb-v", {"parallel.schedule=\"zb-v\"", "model.layers=8"}},
      {"file",
       {"parallel.schedule=\"" +
        testing::write_scattered_schedule(folder_->path(), {1, 3, 0, 2},
                                          "I*.0 I*.1 W*.0 I*.2 W*.1 W*.2 I*.3 W*.3") +
        "\""}}};
  for (const auto& [run, keys] : schedules) {
    SCOPED_TRACE(run);
    Keys all = keys;
    all.emplace_back("parallel.pipeline=4");
    const RunConfig config = traced(run, all);
    train_on(4, config);
    const RunTrace trace = trace_of(run);
    ASSERT_EQ(trace.ranks.size(), 4U);
    testing::expect_trace_of(schedule_of(config, 4), trace);
    for (const RankTrace& rank : trace.ranks) {
      EXPECT_EQ(rank.stage, rank.rank());
      EXPECT_EQ(rank.step.number, 2);
      EXPECT_EQ(rank.step.clock_uncertainty, 0) << "threads share a clock";
      EXPECT_FALSE(rank.step.products.empty());
    }
  }
}

TEST_F(PipelineTrace, NamesTheCoordinatesOfEachRankInTheMesh) {
  const RunConfig config =
      traced("mesh", {"parallel.pipeline=2", "parallel.tensor=2", "train.global_batch=16"});
  train_on(8, config);
  const RunTrace trace = trace_of("mesh");
  ASSERT_EQ(trace.ranks.size(), 8U);
  testing::expect_trace_of(schedule_of(config, 8), trace);
  EXPECT_EQ(trace.ranks[0].coordinates, (Coordinates{{"tensor", 0}, {"data", 0}}));
  EXPECT_EQ(trace.ranks[3].coordinates, (Coordinates{{"tensor", 1}, {"data", 0}}));
  EXPECT_EQ(trace.ranks[3].stage, 1);
  EXPECT_EQ(trace.ranks[3].pipeline, 1);
  EXPECT_EQ(trace.ranks[4].coordinates, (Coordinates{{"tensor", 0}, {"data", 1}}));
  EXPECT_EQ(trace.ranks[4].pipeline, 4);
}

/// Every operation of a lane that communicates has its group, and all ranks of a group agree.
TEST_F(PipelineTrace, NamesTheGroupsThatOperationsCallAndTheBytesSent) {
  const RunConfig config =
      traced("groups", {"parallel.pipeline=2", "parallel.tensor=2", "train.global_batch=16"});
  train_on(8, config);
  const RunTrace trace = trace_of("groups");
  const auto first_of = [&](int rank, const std::vector<std::string>& axes) {
    for (const TraceGroup& group : trace.of_rank(rank).step.groups) {
      if (group.axes == axes) return std::pair(group.first_rank, group.ranks);
    }
    return std::pair(-1, 0);
  };
  EXPECT_EQ(first_of(7, {"tensor"}), std::pair(6, 2));
  EXPECT_EQ(first_of(7, {"data"}), std::pair(3, 2));
  EXPECT_EQ(first_of(7, {"pipeline"}), std::pair(5, 2));
  for (const RankTrace& rank : trace.ranks) {
    double sent = 0;
    for (const TraceEvent& event : rank.step.events) {
      if (event.lane != Lane::compute) {
        EXPECT_FALSE(event.groups.empty()) << event.name;
      }
      sent += event.wire_bytes;
    }
    EXPECT_GT(sent, 0);
    for (const TimedEntry& timed : rank.list) {
      const auto* const message = std::get_if<MessageEntry>(&timed.entry);
      if (message == nullptr) continue;
      // Two rows of 32 positions, of which a tensor rank sends half, 16 wide, in fp64.
      const double bytes = message->call == MessageCall::post_send ? 2 * 16 * 16 * 8 : 0;
      EXPECT_EQ(timed.bytes, bytes) << words_for(message->message);
    }
  }
  const std::vector<std::vector<NetworkCall>> calls = network_calls(trace);
  const NetworkAccount account = account_for_network(trace, calls);
  EXPECT_TRUE(account.unmatched.empty()) << "each call belongs to one of every rank of its group";
  for (const RankNetwork& rank : account.ranks) {
    EXPECT_EQ(rank.all.hidden + rank.all.exposed(), rank.all.total);
    EXPECT_GT(rank.all.total.count(), 0);
  }
  EXPECT_EQ(find_critical_path(trace, calls).unmatched, 0);
}

/// Units of experts and of dense layers are gathered over axes of both views of the mesh, and sums
/// go through the levels of the data axis.
TEST_F(PipelineTrace, OfAMixtureOnLevelsMatchesAllCalls) {
  const RunConfig config =
      mixture("mixture", {"train.steps=2", "checkpoint.every=0", "optimizer.warmup_steps=1",
                          "run.trace_step=2", "parallel.expert=2", "parallel.levels=[2]",
                          "shard.weights=\"all\"", "shard.gradients=\"all\"",
                          "shard.optimizer=\"all\"", "shard.secondary=\"node\""});
  train_on(4, config);
  const RunTrace trace = trace_of("mixture");
  std::set<std::string> axes;
  for (const RankTrace& rank : trace.ranks) {
    for (const TraceGroup& group : rank.step.groups) axes.insert(join(group.axes, "+"));
  }
  EXPECT_THAT(axes, ::testing::IsSupersetOf({"expert", "data.0+data.1"}));
  EXPECT_TRUE(account_for_network(trace, network_calls(trace)).unmatched.empty());
}

TEST_F(PipelineTrace, OfRanksWithoutAPipelineHasTheirListsToo) {
  const RunConfig config = traced("data", {"parallel.schedule=\"\""});
  train_on(2, config);
  const RunTrace trace = trace_of("data");
  ASSERT_EQ(trace.ranks.size(), 2U);
  testing::expect_trace_of(schedule_of(config, 2), trace);
  EXPECT_EQ(trace.ranks[1].coordinates, (Coordinates{{"data", 1}}));
}

/// The device's clock times the actions, and waits for messages.
TEST_F(PipelineTrace, OfEmulatedDevicesHasTheirTimes) {
  const RunConfig config =
      traced("devices", {"parallel.pipeline=2", "run.device=\"emulated\"", "run.hardware=\"\"",
                         "train.precision=\"fp32\"", "model.layers=2"});
  train_on(2, config);
  const RunTrace trace = trace_of("devices");
  ASSERT_EQ(trace.ranks.size(), 2U);
  testing::expect_trace_of(schedule_of(config, 2), trace);
  for (const RankTrace& rank : trace.ranks) {
    EXPECT_GT(rank.step.clock_uncertainty, 0);
    // Each operation of a pass is in an action. The rest are of the data and the update.
    for (const TraceEvent& event : rank.step.events) {
      if (event.phase != "forward" && event.phase != "backward") continue;
      const bool in_action = std::ranges::any_of(rank.list, [&](const TimedEntry& entry) {
        constexpr double kRounding = 2e-9;
        return std::holds_alternative<ChunkAction>(entry.entry) &&
               event.start >= entry.start - kRounding &&
               event.start + event.duration <= entry.end() + kRounding;
      });
      EXPECT_TRUE(in_action) << event.name;
    }
  }
}

/// A run that is traced has the losses of one that is not.
TEST_F(PipelineTrace, ChangesNoResult) {
  train_on(4, traced("with", {"parallel.pipeline=4"}));
  train_on(4, traced("without", {"parallel.pipeline=4", "run.trace_step=0"}));
  expect_same_training(metrics("with"), metrics("without"), 0);
}

}  // namespace
}  // namespace tessera
