#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/mesh_of.h"
#include "plan/programs.h"
#include "support/error_of.h"
#include "train/cut_matrices.h"
#include "train/device_rank_runs.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// One rank on the processor is the oracle.
TEST_F(DeviceRanks, FollowTheCurveOfOneRankOnTheProcessor) {
  const std::vector<std::string> on_processor{"train.precision=\"fp32\"", "train.steps=4",
                                              "train.global_batch=8"};
  train_on(1, config("processor", on_processor));
  train_on(1, mixture("mixture", on_processor));
  struct Layout {
    std::string run;
    int ranks;
    std::vector<std::string> keys;
  };
  for (const Layout& layout : std::vector<Layout>{
           {"data", 2, {"train.micro_batch=1"}},
           {"context", 2, {"parallel.context=2"}},
           {"nodes", 4, {"train.micro_batch=1", "parallel.levels=[2]"}},
           {"data and context", 4, {"train.micro_batch=1", "parallel.context=2"}},
           {"tensor", 2, {"parallel.tensor=2"}},
           {"tensor and data", 4, {"train.micro_batch=1", "parallel.tensor=2"}},
       }) {
    SCOPED_TRACE(layout.run);
    train_on(layout.ranks, config(layout.run, on_device(layout.keys)));
    expect_same_curve(layout.run, "processor", 1e-5);
    if (layout.ranks > 2) continue;
    train_on(layout.ranks, mixture(layout.run + " of a mixture", on_device(layout.keys)));
    expect_same_curve(layout.run + " of a mixture", "mixture", 1e-5);
  }
}

/// Each rank gets the tokens of all, and takes those of its experts.
TEST_F(DeviceRanks, ShareExpertsByAllGather) {
  train_on(1, mixture("all experts",
                      {"train.precision=\"fp32\"", "train.steps=4", "train.global_batch=8"}));
  for (const std::string tensor : {"1", "2"}) {
    train_on(
        2, mixture("experts " + tensor, on_device({"train.micro_batch=" + tensor,
                                                   "parallel.expert=2", "parallel.tensor=" + tensor,
                                                   "parallel.expert_exchange=\"all_gather\""})));
    expect_same_curve("experts " + tensor, "all experts", 1e-5);
  }
}

/// Gradients in bf16 are rounded, but not lost.
TEST_F(DeviceRanks, SumGradientsInBf16AsTheProcessorDoes) {
  const std::vector<std::string> keys{"train.micro_batch=1", "parallel.levels=[2]",
                                      "shard.gradients_wire=\"bf16\""};
  std::vector<std::string> on_processor = keys;
  on_processor.insert(on_processor.end(),
                      {"train.precision=\"fp32\"", "train.steps=4", "train.global_batch=8"});
  train_on(4, config("narrow on the processor", on_processor));
  train_on(4, config("narrow", on_device(keys)));
  expect_same_curve("narrow", "narrow on the processor", 1e-4);
  EXPECT_NE(metrics("narrow")[3].loss, metrics("narrow")[0].loss);
}

/// Masters and moments that ranks share out are the same bits, on one node and on two. Matrices of
/// Muon that are cut go to their owners and back.
TEST_F(DeviceRanks, ShareOutTheOptimizersStates) {
  struct Layout {
    std::string name;
    std::vector<std::string> keys;
  };
  for (const auto& [name, keys] : std::vector<Layout>{
           {"node", {"parallel.levels=[4]"}},
           {"nodes", {"parallel.levels=[2]"}},
           {"muon",
            {"parallel.levels=[2]", "model.feed_forward_size=301", "model.layers=1",
             "optimizer.name=\"muon\""}},
       }) {
    SCOPED_TRACE(name);
    std::vector<std::string> each = on_device(keys);
    each.insert(each.end(), {"train.micro_batch=1", "train.steps=2", "optimizer.warmup_steps=1",
                             "train.global_batch=4"});
    std::vector<std::string> shared = each;
    shared.emplace_back("shard.optimizer=\"all\"");
    EXPECT_EQ(cuts_matrices(config("plan", shared), 4), name == "muon");
    train_on(4, config("each " + name, each));
    train_on(4, config("shared " + name, shared));
    expect_same_curve("shared " + name, "each " + name, 0);
    EXPECT_TRUE(tensors("shared " + name, 2) == tensors("each " + name, 2));
  }
}

TEST_F(DeviceRanks, HaveTheSameBitsAgainAndAfterAResume) {
  const std::vector<std::string> keys = on_device({"train.micro_batch=1"});
  train_on(2, config("whole", keys));
  train_on(2, config("again", keys));
  std::vector<std::string> stopped = keys;
  stopped.emplace_back("train.stop_after=2");
  train_on(2, config("stopped", stopped));
  train_on(2, config("stopped", keys), {.resume = true});
  std::vector<std::string> without_graphs = keys;
  without_graphs.emplace_back("run.graphs=false");
  train_on(2, config("ungraphed", without_graphs));
  const std::string expected = files("whole", 4);
  ASSERT_FALSE(expected.empty());
  EXPECT_TRUE(files("again", 4) == expected);
  EXPECT_TRUE(files("stopped", 4) == expected);
  EXPECT_TRUE(files("ungraphed", 4) == expected);
}

/// A pass that takes turns runs in several graphs. Two trainings are one: its first steps run node
/// by node, then graphs are captured, then launched.
TEST_F(DeviceRanks, HaveTheSameBitsIfMicroBatchesTakeTurns) {
  const std::vector<std::string> keys =
      on_device({"train.micro_batch=1", "parallel.tensor=2", "train.evaluate_every=2",
                 "train.evaluate_batches=2"});
  const RunConfig in_turns = config("in turns", keys);
  ASSERT_FALSE(step_programs(in_turns, {mesh_of(in_turns, 2), 0}).sets.front().turns.empty());
  train_on(2, in_turns);
  std::vector<std::string> written = keys;
  written.emplace_back("parallel.overlap=false");
  train_on(2, config("as written", written));
  ASSERT_FALSE(files("as written", 4).empty());
  EXPECT_TRUE(files("in turns", 4) == files("as written", 4));
}

/// The emulated devices' library sums in the order of the ranks, as the kernel does. On two nodes
/// there are sums that scatter, and with tensor ranks there are copies.
TEST_F(DeviceRanks, MayLeaveSumsToTheirLibrary) {
  for (const std::string layout : {"parallel.levels=[2]", "parallel.tensor=2"}) {
    const std::vector<std::string> keys =
        on_device({"train.micro_batch=1", layout, "run.check_replicas=1"});
    train_on(4, config("ordered " + layout, keys));
    std::vector<std::string> free = keys;
    free.emplace_back("run.deterministic=false");
    train_on(4, config("free " + layout, free));
    const std::string expected = files("ordered " + layout, 4);
    ASSERT_FALSE(expected.empty());
    EXPECT_TRUE(files("free " + layout, 4) == expected) << layout;
  }
}

TEST_F(DeviceRanks, GoOnUnderAnotherLayoutAndOnTheProcessor) {
  const std::vector<std::string> two = on_device({"train.micro_batch=1", "train.stop_after=2"});
  train_on(2, config("reshaped", two));
  const std::vector<std::string> four = on_device({"train.micro_batch=1", "train.stop_after=3"});
  train_on(4, config("reshaped", four), {.resume = true});
  train_on(
      1, config("reshaped", {"train.precision=\"fp32\"", "train.steps=4", "train.global_batch=8"}),
      {.resume = true});
  train_on(
      1, config("straight", {"train.precision=\"fp32\"", "train.steps=4", "train.global_batch=8"}));
  expect_same_curve("reshaped", "straight", 1e-5);
}

/// All ranks give the work of that step node by node, and go on with graphs.
TEST_F(DeviceRanks, TraceAStepTogether) {
  train_on(2, config("untraced", on_device({"train.micro_batch=1"})));
  for (const std::string step : {"1", "3"}) {
    const std::string run = "traced " + step;
    train_on(2, config(run, on_device({"train.micro_batch=1", "run.trace_step=" + step,
                                       "run.rank_timeout=60"})));
    EXPECT_TRUE(fs::exists(folder(run) / "trace.json"));
    EXPECT_TRUE(files(run, 4) == files("untraced", 4)) << step;
  }
}

TEST_F(DeviceRanks, CompareTheirCopies) {
  train_on(2, config("compared", on_device({"train.micro_batch=1", "run.check_replicas=1"})));
  EXPECT_EQ(metrics("compared").size(), 4U);
}

TEST_F(DeviceRanks, EndTogetherWithTheErrorOfOne) {
  TrainOptions options;
  options.before_step = [](int rank, int64_t step) {
    if (rank == 1 && step == 3) throw Error("the third step of rank 1");
  };
  const std::string error =
      error_of([&] { train_on(2, config("failed", on_device({"train.micro_batch=1"})), options); });
  EXPECT_THAT(error, HasSubstr("the third step of rank 1"));
  EXPECT_FALSE(files("failed", 2).empty());
}

/// When the results of step 2 are read, step 3 has begun sums of gradients, which are steps of its
/// update.
TEST_F(DeviceRanks, NameWhatIsNotFiniteWhileTheNextStepIsUnderWay) {
  for (const std::string graphs : {"true", "false"}) {
    RunConfig overflowing = config("overflowing " + graphs,
                                   on_device({"train.micro_batch=1", "optimizer.warmup_steps=1",
                                              "train.steps=20", "run.graphs=" + graphs}));
    overflowing.checkpoint.every = 0;
    overflowing.optimizer.learning_rate = 1e30;
    const std::string error = error_of([&] { train_on(2, overflowing); });
    EXPECT_THAT(error, AllOf(HasSubstr("step 2"), HasSubstr("is not finite at element"),
                             HasSubstr("made by")));
  }
}

TEST_F(DeviceRanks, AreRefusedWhatDevicesCannotDoYet) {
  const auto refusal = [&](const std::string& run, std::vector<std::string> keys) {
    keys.insert(keys.end(), {"parallel.expert=2", "train.micro_batch=1"});
    const std::string error = error_of([&] { train_on(2, mixture(run, on_device(keys))); });
    EXPECT_FALSE(fs::exists(folder(run) / "config.toml"));
    return error;
  };
  EXPECT_THAT(refusal("sent", {"parallel.expert_exchange=\"all_to_all\""}),
              HasSubstr("devices do not send rows to the ranks of their experts yet; set "
                        "parallel.expert_exchange = \"all_gather\""));
  EXPECT_THAT(refusal("bound", {"parallel.expert_exchange=\"all_gather\"",
                                "parallel.expert_rows_bound=1.25"}),
              HasSubstr("set parallel.expert_rows_bound to 0 for as many as can come"));
}

}  // namespace
}  // namespace tessera
