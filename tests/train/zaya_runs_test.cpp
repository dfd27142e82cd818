// Runs of ZAYA1's family: what its forward passes change is saved and goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/known_peak.h"
#include "train/rank_runs.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ZayaRuns : public Ranks {
 protected:
  static void SetUpTestSuite() {
    Ranks::SetUpTestSuite();
    testing::write_known_peak(folder("hardware.json"));
  }
  /// On one thread.
  static RunConfig zaya(const std::string& run, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"run.threads=1", "model.family=\"zaya\"", "model.feed_forward_size=0",
                             "model.head_dim=8", "model.experts=4", "model.expert_size=16",
                             "model.router_size=8"});
    return config(run, more);
  }
};

TEST_F(ZayaRuns, GoOnBitForBit) {
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::vector<std::string>>>{
           {1, {}},
           {4, {"parallel.tensor=2", "parallel.expert=2"}},
           {4, {"parallel.tensor=2", "optimizer.name=\"muon\"", "shard.optimizer=\"all\""}}}) {
    SCOPED_TRACE(::testing::PrintToString(layout));
    const std::string straight = fmt::format("straight-{}-{}", ranks, layout.size());
    const std::string stopped = fmt::format("stopped-{}-{}", ranks, layout.size());
    std::vector<std::string> whole = layout;
    whole.emplace_back("train.steps=6");
    train_on(ranks, zaya(straight, whole));
    std::vector<std::string> first = whole;
    first.emplace_back("train.stop_after=3");
    train_on(ranks, zaya(stopped, first));
    train_on(ranks, zaya(stopped, whole), {.resume = true});
    EXPECT_TRUE(tensors(stopped, 6) == tensors(straight, 6));

    const CheckpointReader reader(checkpoint(straight, 6));
    // 8 sequences a step, 2 of each data rank at once; two ranks share their sequences.
    EXPECT_EQ(reader.state().integer("micro_batches"), ranks == 1 ? 6 * 4 : 6 * 2);
    EXPECT_NE(reader.find("parameters", "layers.1.router.balancing_biases"), nullptr);
    EXPECT_NE(reader.find("optimizer", "layers.1.router.balancing_biases.first_moment"), nullptr);
  }
}

/// The sign's rule has no moments.
TEST_F(ZayaRuns, GoOnBitForBitWithTheSignsRule) {
  const std::vector<std::string> rule{"model.balance_biases=\"sign\""};
  train_on(1, zaya("signs", rule));
  train_on(1, zaya("signs-stopped", {rule[0], "train.stop_after=7"}));
  train_on(1, zaya("signs-stopped", rule), {.resume = true});
  EXPECT_TRUE(tensors("signs-stopped", 20) == tensors("signs", 20));
  const CheckpointReader reader(checkpoint("signs", 20));
  EXPECT_EQ(reader.find("optimizer", "layers.1.router.balancing_biases.first_moment"), nullptr);

  // Its weights go on with the other rule, which changes the same biases, but not without biases.
  const std::string initial = "checkpoint.initial=\"" + folder("signs").string() + "\"";
  train_on(1,
           zaya("goes-on", {initial, "model.balance_biases=\"controller\"", "train.stop_after=1"}));
  EXPECT_NE(CheckpointReader(checkpoint("goes-on", 1))
                .find("optimizer", "layers.1.router.balancing_biases.first_moment"),
            nullptr);
  const std::string controlled = "checkpoint.initial=\"" + folder("goes-on").string() + "\"";
  train_on(1, zaya("goes-back", {controlled, rule[0], "train.stop_after=1"}));
  EXPECT_EQ(CheckpointReader(checkpoint("goes-back", 1))
                .find("optimizer", "layers.1.router.balancing_biases.first_moment"),
            nullptr);
  EXPECT_THAT(error_of([&] {
                train_on(1, zaya("without", {initial, "model.balance_biases=\"none\""}));
              }),
              HasSubstr("model.balance_biases is \"sign\" for the weights, \"none\" in the"));
}

/// Another micro-batch would be another controller.
TEST_F(ZayaRuns, GoOnOnlyWithTheSameMicroBatchOfAllRanks) {
  train_on(1, zaya("begun", {"train.stop_after=2"}));
  EXPECT_THAT(
      error_of([&] { train_on(1, zaya("begun", {"train.micro_batch=4"}), {.resume = true}); }),
      AllOf(HasSubstr("a step of the controller of its balancing biases over 64 tokens"),
            HasSubstr("here it would be 128")));
  EXPECT_EQ(
      train_on(2, zaya("begun", {"train.micro_batch=1", "train.stop_after=4"}), {.resume = true})
          .step,
      4);
}

TEST_F(ZayaRuns, SayHowManyTokensVisitNoExpert) {
  train_on(1, zaya("skips", {"train.stop_after=3", "model.balance_biases=\"none\"",
                             "model.initialization_deviation=0.5"}));
  ASSERT_EQ(metrics("skips").size(), 3);
  for (const StepMetrics& step : metrics("skips")) {
    ASSERT_TRUE(step.skipped.has_value());
    EXPECT_GT(*step.skipped, 0);
    EXPECT_LT(*step.skipped, 1);
  }
  train_on(1, mixture("without", {"train.stop_after=1", "run.threads=1"}));
  EXPECT_FALSE(metrics("without").front().skipped.has_value());
}

}  // namespace
}  // namespace tessera
