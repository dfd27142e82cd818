// Training on several ranks, which are threads of this process: what one rank gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "pipeline/run_trace.h"
#include "support/error_of.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Ranks, OfDataHaveTheLossesOfOne) {
  const std::vector<std::string> evaluates{"train.evaluate_every=10", "train.evaluate_batches=4"};
  train_on(1, config("data-1", evaluates));
  for (const int ranks : {2, 4}) {
    const std::string run = fmt::format("data-{}", ranks);
    EXPECT_EQ(train_on(ranks, config(run, evaluates)).step, 20);
    expect_same_training(metrics(run), metrics("data-1"), 1e-11);
  }
  EXPECT_LT(metrics("data-1").back().loss, 0.8 * metrics("data-1").front().loss);
}

/// Gathers of updated weights go on when a step has ended. A traced step waits for them, because no
/// event of a trace ends after its step.
TEST_F(Ranks, TraceAStepWithAllOfItsGathers) {
  for (const std::string overlap : {"true", "false"}) {
    const std::string run = "traced-" + overlap;
    train_on(2, config(run, {"shard.optimizer='all'", "train.steps=6", "run.trace_step=5",
                             "parallel.overlap=" + overlap, "run.hardware=''"}));
    const RunTrace trace = read_trace(folder(run) / "trace.json");
    ASSERT_EQ(trace.ranks.size(), 2U);
    for (const RankTrace& rank : trace.ranks) {
      const auto gathers = std::ranges::count_if(
          rank.step.events, [](const TraceEvent& event) { return event.name == "gather_pieces"; });
      EXPECT_GT(gathers, 0);
    }
  }
}

/// 20 steps in f32: each sum has another order, and nothing grows.
TEST_F(Ranks, StayNearOneInSinglePrecision) {
  const std::string single = "train.precision=\"fp32\"";
  train_on(1, config("single", {single}));
  train_on(1, mixture("single-experts", {single}));
  int number = 0;
  const auto expect_near = [&](int ranks, bool experts, std::vector<std::string> keys) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, join(keys, ", ")));
    keys.push_back(single);
    const std::string run = fmt::format("single-{}", ++number);
    train_on(ranks, experts ? mixture(run, keys) : config(run, keys));
    expect_same_training(metrics(run), metrics(experts ? "single-experts" : "single"), 1e-5, 1e-4);
  };
  expect_near(2, false, {});
  expect_near(2, false, {"parallel.tensor=2"});
  expect_near(2, false, {"parallel.context=2"});
  expect_near(8, false, {"parallel.tensor=2", "parallel.context=2"});
  for (const std::string exchange : {"all_gather", "all_to_all"}) {
    const std::string by = "parallel.expert_exchange=\"" + exchange + "\"";
    expect_near(2, true, {by, "parallel.expert=2"});
    expect_near(4, true, {by, "parallel.expert=4", "parallel.tensor=2"});
  }
}

/// In bf16 choices of experts flip, so that only the course of the loss can be the same.
TEST_F(Ranks, LearnInBfloat16AsOneDoes) {
  const std::string rounded = "train.precision=\"bf16\"";
  train_on(1, mixture("rounded", {rounded}));
  train_on(4, mixture("rounded-4", {rounded, "parallel.tensor=2", "parallel.expert=4"}));
  const auto one = metrics("rounded"), four = metrics("rounded-4");
  ASSERT_EQ(four.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(four[i].loss / one[i].loss, 1, 0.01) << "step " << i + 1;
  }
  EXPECT_LT(four.back().loss, 0.8 * four.front().loss);
}

TEST_F(Ranks, GiveTheSameBitsEachTime) {
  train_on(2, config("again-1"));
  train_on(2, config("again-2"));
  EXPECT_TRUE(tensors("again-1", 20) == tensors("again-2", 20));
}

TEST_F(Ranks, OfOtherAxesHaveTheLossesOfOne) {
  train_on(1, config("axes-1"));
  const std::vector<std::pair<int, std::vector<std::string>>> layouts{
      {2, {"parallel.tensor=2"}},
      {4, {"parallel.tensor=4"}},
      {2, {"parallel.context=2"}},
      {4, {"parallel.tensor=2", "parallel.context=2"}},
      {8, {"parallel.tensor=2", "parallel.context=2"}}};
  int number = 0;
  for (const auto& [ranks, keys] : layouts) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, join(keys, ", ")));
    const std::string run = fmt::format("axes-of-{}", ++number);
    train_on(ranks, config(run, keys));
    expect_same_training(metrics(run), metrics("axes-1"), 1e-10);
  }
}

TEST_F(Ranks, OfExpertsHaveTheLossesOfOne) {
  const auto coupled = [](const std::string& run, std::vector<std::string> more) {
    more.insert(more.end(), {"model.balance_coefficient=0.01", "model.router_z_coefficient=0.001",
                             "model.capacity_factor=1.5", "train.steps=8"});
    return mixture(run, more);
  };
  // The balance loss and the capacity are of the micro-batch of all ranks, of 8 sequences.
  const std::string one = "experts-one";
  train_on(1, coupled(one, {"train.micro_batch=8"}));
  const auto expect_same = [&](const std::string& run, const std::vector<std::string>& keys) {
    SCOPED_TRACE(join(keys, ", "));
    train_on(4, coupled(run, keys));
    expect_same_training(metrics(run), metrics(one), 1e-9);
    for (size_t i = 0; i < metrics(run).size(); ++i) {
      EXPECT_EQ(metrics(run)[i].expert_load, metrics(one)[i].expert_load);
      EXPECT_NEAR(*metrics(run)[i].balance_loss / *metrics(one)[i].balance_loss, 1, 1e-9);
    }
  };
  int number = 0;
  for (const std::string exchange : {"all_gather", "all_to_all"}) {
    const std::string by = "parallel.expert_exchange=\"" + exchange + "\"";
    for (const int64_t experts : {1, 2, 4}) {
      expect_same(fmt::format("experts-{}", ++number),
                  {by, fmt::format("parallel.expert={}", experts)});
    }
    expect_same(fmt::format("experts-{}", ++number),
                {by, "parallel.expert=4", "parallel.tensor=2", "train.micro_batch=4"});
  }
}

/// The demo's model with fewer layers and shorter sequences, by its own file. It runs under the
/// thread sanitizer too, which does not see into oneDNN; fp64 does without it. Nor does it see into
/// OpenMP, so there each rank has one thread: races between ranks are shown, and those between the
/// threads of one rank are not.
TEST_F(Ranks, TrainTheDemosModel) {
  const fs::path one_thread = folder("one_thread.json");
  testing::write_known_peak(one_thread);
  const auto demo = [&](const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> keys{fmt::format("run.directory=\"{}\"", folder(run).string()),
                                  fmt::format("data.directory=\"{}\"", folder("data").string()),
                                  "data.context=32",
                                  "model.vocabulary_size=260",
                                  "model.layers=2",
                                  "train.precision=\"fp64\"",
                                  "train.global_batch=2",
                                  "train.steps=2",
                                  "train.evaluate_every=2",
                                  "optimizer.warmup_steps=1",
                                  "run.threads=1",
                                  "run.hardware=\"" + one_thread.string() + "\""};
    keys.insert(keys.end(), more.begin(), more.end());
    return load_config(fs::path(TESSERA_SOURCE) / "configs" / "demo.toml", keys);
  };
  train_on(1, demo("demo-1", {"train.micro_batch=2", "train.evaluate_batches=2"}));
  for (const std::string exchange : {"all_gather", "all_to_all"}) {
    train_on(
        4, demo(exchange, {"train.micro_batch=1", "train.evaluate_batches=4", "parallel.tensor=2",
                           "parallel.expert=2", "parallel.expert_exchange=\"" + exchange + "\""}));
    expect_same_training(metrics(exchange), metrics("demo-1"), 1e-10);
  }
}

TEST_F(Ranks, RefuseWhatTheyCannotShare) {
  const auto error = [](int ranks, const std::vector<std::string>& keys) {
    return error_of([&] { train_on(ranks, config("refused", keys)); });
  };
  EXPECT_THAT(error(3, {"parallel.tensor=2"}),
              AllOf(HasSubstr("parallel.tensor (2)"), HasSubstr("--ranks (3)")));
  EXPECT_THAT(error(8, {}),
              AllOf(HasSubstr("train.micro_batch (2)"), HasSubstr("8 data-parallel ranks is 16"),
                    HasSubstr("train.global_batch (8)")));
  EXPECT_THAT(error(3, {"parallel.pipeline=2"}),
              AllOf(HasSubstr("parallel.pipeline (2)"), HasSubstr("--ranks (3)")));
  EXPECT_FALSE(fs::exists(folder("refused")));
}

}  // namespace
}  // namespace tessera
